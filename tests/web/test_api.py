"""The HTTP API: every endpoint as a client meets it."""

import io
import json
import zipfile

import numpy as np
import pytest
from PIL import Image
from tests.web.studios import PAGE, finder, scene, served

import whet
from whet.web.security import Access

JSON = {"content-type": "application/json", **PAGE}


def png(image=None):
    content = io.BytesIO()
    Image.fromarray(scene(1) if image is None else image).save(content, "PNG")
    return content.getvalue()


def get(client, path):
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def post(client, path, status=200, **body):
    answer = client.post(path, json=body, headers=PAGE)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_a_session_from_the_first_look_to_the_last_undo(tmp_path):
    with served(tmp_path) as (client, keys):
        state = get(client, "/api/state")
        assert (state["n_images"], state["n_corrections"], state["model"]["name"]) == (4, 0, "bull")
        listed = get(client, "/api/images?order=queue&limit=2")
        assert (listed["total"], len(listed["images"])) == (4, 2)
        image = get(client, f"/api/images/{keys[0]}")
        wrong = image["detections"][-1]["box"]
        answer = post(client, f"/api/images/{keys[0]}/labels", boxes=[wrong], is_object=False, request_id="1")
        assert len(answer["image"]["detections"]) < len(image["detections"])
        assert answer["effect"]["lost"] >= 1
        assert get(client, "/api/effect")["changes"][0]["kind"] == "lost"
        assert get(client, "/api/history")["current"] == answer["node"]
        assert get(client, "/api/state")["n_corrections"] == 1
        record = answer["added"][0]
        assert post(client, "/api/blame", image=keys[0], box=wrong)["causes"][0]["record_id"] == record
        assert client.delete(f"/api/labels/{record}?request_id=2", headers=PAGE).json()["image"]["labels"] == []
        assert post(client, "/api/undo")["n_corrections"] == 1
        assert post(client, "/api/undo")["node"] == 0
        assert "nothing to undo" in post(client, "/api/undo", 404)["detail"]
        assert post(client, "/api/redo")["n_corrections"] == 1
        assert post(client, "/api/branches", name="try")["branch"] == "try"
        assert post(client, "/api/checkout", branch="main")["branch"] == "main"
        assert client.delete("/api/branches/try").json()["branches"].keys() == {"main"}
        assert post(client, f"/api/images/{keys[1]}/confirm")["image"]["is_reviewed"]
        assert post(client, "/api/confirm", images=keys[2:])["node"] > 0
        post(client, f"/api/images/{keys[0]}/confirm")
        assert post(client, f"/api/images/{keys[0]}/lock", is_locked=True)["is_locked"]
        assert get(client, "/api/state")["locked"]["n_objects"] > 0
        assert get(client, "/api/curves")["n_images"] == 4
        assert client.put("/api/min_score", json={"min_score": "default"}).json()["min_score_name"] == "default"


def test_images_have_types_etags_and_no_other_paths(tmp_path):
    with served(tmp_path) as (client, keys):
        for path in (f"/api/images/{keys[0]}/file", f"/api/images/{keys[0]}/thumbnail"):
            answer = client.get(path)
            assert (answer.status_code, answer.headers["content-type"]) == (200, "image/jpeg")
            assert Image.open(io.BytesIO(answer.content)).size == (200, 150) or "thumb" in path
            again = client.get(path, headers={"If-None-Match": answer.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")


def test_the_page_and_its_files_are_served_with_their_types(tmp_path):
    with served(tmp_path) as (client, _):
        page = client.get("/")
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        script = client.get("/static/js/app.js")
        assert script.headers["content-type"].startswith("text/javascript")
        assert "/api/labels/{record_id}" in client.get("/api/docs").text


def test_files_that_leave_the_studio_are_read_by_whet(tmp_path):
    with served(tmp_path) as (client, keys):
        post(client, f"/api/images/{keys[0]}/labels", boxes=[[40, 30, 70, 60]], is_object=True)
        assert client.get("/api/export?format=coco").status_code == 409  # nobody has reviewed an image yet
        coco = client.get("/api/export?format=coco&reviewed=false").json()
        assert len(coco["images"]) == 4
        assert not any(name["file_name"].startswith(("/", "..")) for name in coco["images"])
        n_boxes = sum(len(get(client, f"/api/images/{key}")["detections"]) for key in keys)
        assert n_boxes <= len(coco["annotations"]) <= n_boxes + 1
        names = {}
        for form in ("yolo", "voc"):
            folder = tmp_path / form
            with zipfile.ZipFile(
                io.BytesIO(client.get(f"/api/export?format={form}&reviewed=false").content)
            ) as archive:
                archive.extractall(folder)
                names[form] = sorted(archive.namelist())
        images = [f"images/train/{n}.png" for n in range(4)]
        assert names["yolo"] == sorted(["data.yaml", *images, *(f"labels/train/{n}.txt" for n in range(4))])
        assert names["voc"] == [f"{n}.xml" for n in range(4)]
        for form in ("coco", "voc"):  # with images: paths of the annotations resolve
            folder = tmp_path / f"{form}-images"
            answer = client.get(f"/api/export?format={form}&reviewed=false&images=true")
            with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
                archive.extractall(folder)
                assert {f"images/{n}.png" for n in range(4)} < set(archive.namelist())
            place = folder / ("annotations.json" if form == "coco" else "voc")
            read = whet.io.annotations.formats.read_annotations(place, form)
            assert [image.path.is_file() for image in read.images] == [True] * 4
            assert (read.n_boxes, [str(problem) for problem in read.problems]) == (len(coco["annotations"]), [])
        read = whet.io.annotations.formats.read_annotations(tmp_path / "yolo", "yolo")
        assert read.n_boxes == len(coco["annotations"])
        corrections = client.get("/api/export?format=corrections").json()
        assert [row["category_id"] for row in corrections["annotations"]] == [1]
        model = client.get("/api/model.whet")
        assert "filename*" in model.headers["content-disposition"]
        assert len(whet.detector.detector.Detector.from_bytes(model.content).records) == 1
        answer = client.get("/api/model.xml")
        assert answer.status_code in (200, 409)


def test_two_boxes_of_one_place_are_one_object(tmp_path):
    box, moved = [80, 60, 120, 100], [80, 60, 120, 99]  # beside the bulls
    with served(tmp_path, detector=None) as (client, keys):
        for each in (box, moved):
            post(client, f"/api/images/{keys[0]}/labels", boxes=[each], is_object=True)
        post(client, f"/api/images/{keys[0]}/labels", boxes=[[80, 60, 120, 94]], is_object=True)  # IoU 0.85
        assert get(client, "/api/state")["n_objects"] == 2
        assert get(client, "/api/images")["images"][0]["n_labels"]["missed"] == 2
        post(client, f"/api/images/{keys[0]}/confirm")
        written = client.get("/api/export?format=coco").json()["annotations"]
        assert [row["bbox"] for row in written] == [[80, 60, 40, 40], [80, 60, 40, 34]]


def test_a_rejection_where_nothing_is_detected_has_a_hint(tmp_path):
    with served(tmp_path) as (client, keys):
        found = get(client, f"/api/images/{keys[0]}")["detections"][0]["box"]
        path = f"/api/images/{keys[0]}/labels"
        assert post(client, path, boxes=[found], is_object=False)["hint"] is None
        assert post(client, path, boxes=[[80, 5, 110, 35]], is_object=True)["hint"] is None
        answer = client.post(
            "/api/learn",
            files={"image": ("a.png", png(np.full((90, 90, 3), 128, np.uint8)), "image/png")},
            data={"boxes": "[[10, 10, 40, 40]]", "is_object": "false"},
        )
        assert answer.status_code == 200, answer.text
        assert "nothing is detected at 1 of the 1 boxes" in answer.json()["hint"]
        assert post(client, path, boxes=[found], is_object=False)["hint"] is None  # rejected before


def test_an_upload_is_detected_as_the_library_does_and_can_be_learned(tmp_path):
    with served(tmp_path) as (client, _):
        found = client.post("/api/detect", files={"image": ("a.png", png(), "image/png")}).json()
        expected = finder().detect(scene(1))
        assert [d["box"] for d in found["detections"]] == [
            [round(s, 2) for s in box] for box in expected.boxes.tolist()
        ]
        body = {"boxes": json.dumps([found["detections"][-1]["box"]]), "is_object": "false", "request_id": "u"}
        for _ in range(2):
            answer = client.post("/api/learn", files={"image": ("../a.png", png(), "image/png")}, data=body)
            assert answer.status_code == 200, answer.text
        assert answer.json()["node"] == 1
        after = client.post("/api/detect", files={"image": ("a.png", png(), "image/png")}).json()
        assert len(after["detections"]) < len(found["detections"])
        refused = client.post(
            "/api/learn", files={"image": ("a.png", png(), "image/png")}, data=body | {"boxes": "[[1]]"}
        )
        assert (refused.status_code, "expected JSON" in refused.json()["detail"]) == (422, True)


def test_deepstack_clients_get_their_shape_best_first(tmp_path):
    with served(tmp_path) as (client, _):
        answer = client.post("/v1/vision/detection", files={"image": ("a.png", png(), "image/png")})
        content = answer.json()
        assert (answer.status_code, content["success"], content["code"]) == (200, True, 200)
        shares = [one["confidence"] for one in content["predictions"]]
        assert shares == sorted(shares, reverse=True)
        assert min(shares, default=1.0) >= 0.4
        assert {"label", "confidence", "x_min", "y_min", "x_max", "y_max"} == set(content["predictions"][0])
        every = client.post(
            "/v1/vision/detection", files={"image": ("a.png", png(), "image/png")}, data={"min_confidence": "0"}
        ).json()
        assert len(every["predictions"]) >= len(shares)
        wrong = client.post("/v1/vision/detection", files={"image": ("a.png", b"nothing", "image/png")})
        assert (wrong.status_code, wrong.json()["success"]) == (400, False)


def test_deepstack_clients_send_their_token_as_a_field(tmp_path):
    with served(tmp_path, access=Access(token="secret-token-1")) as (client, _):
        for key, status in (("secret-token-1", 200), ("", 401), ("other", 401)):
            files = {"image": ("a.png", png(), "image/png")}
            assert client.post("/v1/vision/detection", files=files, data={"api_key": key}).status_code == status


def test_metrics_count_requests(tmp_path):
    with served(tmp_path) as (client, keys):
        get(client, f"/api/images/{keys[0]}")
        client.get("/api/images/nothing")
        text = client.get("/metrics").text
        assert 'whet_requests_total{route="/api/images/{id}",method="GET",status="200"} 1' in text
        assert 'status="404"} 1' in text
        assert "whet_images 4" in text


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("/api/images/nothing/labels", {"boxes": [[1, 2, 30, 40]], "is_object": True}, 404, "expected the id"),
        ("/api/images/KEY/labels", {"boxes": [[1, 2]], "is_object": True}, 422, "boxes"),
        ("/api/images/KEY/labels", {"boxes": [], "is_object": True}, 422, "boxes"),
        ("/api/images/KEY/labels", {"boxes": [[30, 40, 1, 2]], "is_object": True}, 422, "expected"),
        ("/api/checkout", {"node": 99}, 404, "expected one of"),
        ("/api/checkout", {}, 404, "expected one"),
        ("/api/branches", {"name": "main"}, 409, "exists"),
        ("/api/branches", {"name": "\n"}, 422, "expected"),
        ("/api/train", {"class_name": "bull"}, 422, "draw at least"),
        ("/api/video", {"action": "play"}, 404, "no video"),
        ("/api/confirm", {"images": ["nothing"]}, 404, "expected the id"),
    ],
)
def test_errors_are_one_sentence_with_cause_and_remedy(tmp_path, path, body, status, said):
    with served(tmp_path, n=1) as (client, keys):
        answer = post(client, path.replace("KEY", keys[0]), status, **body)
        assert said in answer["detail"]
        assert "Traceback" not in answer["detail"]


def test_numbers_that_are_none_are_refused(tmp_path):
    with served(tmp_path, n=1) as (client, keys):
        body = '{"boxes": [[NaN, 1, 2, 3]], "is_object": true}'
        answer = client.post(f"/api/images/{keys[0]}/labels", content=body, headers=JSON)
        assert answer.status_code == 422
        assert client.put("/api/min_score", content='{"min_score": Infinity}', headers=JSON).status_code == 422


def test_the_same_pixels_are_one_image(tmp_path):
    with served(tmp_path, n=2) as (client, _):
        body = {"boxes": "[[40, 30, 70, 60]]", "is_object": "true"}
        client.post(
            "/api/learn", files={"image": ("again.png", png(np.ascontiguousarray(scene(1))), "image/png")}, data=body
        )
        assert get(client, "/api/state")["n_images"] == 2
