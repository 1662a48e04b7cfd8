"""Files as people have them: bad rows are problem_lines with file and line, and the rest is read."""

import json

import numpy as np
import pytest
from tests.io.annotations.sets import save_image

from whet.errors import AnnotationError, DataNotFoundError
from whet.io.annotations.annotation import MAX_PROBLEMS, Annotations, ProblemKind
from whet.io.annotations.formats import detect_format, read_annotations, write_annotations

HEAD = "path,x,y,w,h,label,ignore\n"


@pytest.fixture
def folder(tmp_path):
    save_image(tmp_path / "a.png")  # 200 x 100
    return tmp_path


def read_text(folder, name, text, **options):
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_annotations(folder / name, **options)


def problem_lines(annotations, folder):
    return [str(problem).replace(f"{folder}/", "") for problem in annotations.problems]


def test_rows_that_cannot_be_read_are_reported_with_their_lines(folder):
    read = read_text(
        folder,
        "b.csv",
        (HEAD + "a.png,1,2,3,4,car\na.png,1,2\na.png,x,2,3,4,car\na.png,nan,2,3,4,car\n,1,2,3,4\n").encode()
        + b"\xff\xfe.png,1,2,3,4,car\na.png,5,5,0,9,car\n",
    )
    assert read.n_boxes == 1
    assert problem_lines(read, folder) == [
        "b.csv:3: got 3 columns; expected at least 5",
        "b.csv:4: got the box 'x, 2, 3, 4'; expected four numbers",
        "b.csv:5: got the box 'nan, 2, 3, 4'; expected four numbers",
        "b.csv:6: the path is empty",
        "b.csv:7: not UTF-8 text (invalid start byte); save the file as UTF-8",
        "b.csv:8: box (5, 5, 5, 14) in a.png: width or height is not positive; dropped",
    ]


def test_boxes_beyond_the_image_are_clipped_ignored_or_dropped_by_what_is_left(folder):
    read = read_text(
        folder,
        "b.csv",
        HEAD + "a.png,-5,0,50,50,car\na.png,180,0,60,50,car\na.png,300,0,9,9,car\na.png,0,0,200.5,50,car",
    )
    assert problem_lines(read, folder) == [
        "b.csv:2: box (-5, 0, 45, 50) in a.png: exceeds the 200 x 100 image; clipped",
        "b.csv:3: box (180, 0, 240, 50) in a.png: mostly outside the 200 x 100 image; marked as ignored",
        "b.csv:4: box (300, 0, 309, 9) in a.png: outside the 200 x 100 image; dropped",
    ]
    (one,) = read.images
    assert one.objects.tolist() == [[0, 0, 45, 50], [0, 0, 200, 50]]
    assert one.ignored.tolist() == [[180, 0, 200, 50]]


def test_missing_and_unreadable_images_are_named_and_left_out(folder):
    (folder / "broken.png").write_bytes(b"not an image")
    read = read_text(folder, "b.csv", "a.png,1,2,3,4\ngone.png,1,2,3,4\nbroken.png,1,2,3,4\n")
    assert len(read) == 1
    assert read.summary() == "1 image, 1 box: object 1; 1 image missing, 1 image unreadable"
    assert problem_lines(read, folder)[0] == "b.csv:2: image not found: 'gone.png'"


def test_all_images_missing_is_an_error_that_says_where_it_looked(folder):
    with pytest.raises(DataNotFoundError, match=r"none of the 2 annotated images .*'x\.png'.*--images DIR"):
        read_text(folder, "b.csv", "x.png,1,2,3,4\ny.png,1,2,3,4\n")


def test_images_are_found_by_windows_paths_base_names_and_looks_of_letters(folder):
    save_image(folder / "elsewhere" / "Größe.PNG")
    read = read_text(folder, "b.csv", "C:\\data\\a.png,1,2,3,4\nsub\\Gro\u0308\u00dfe.png,1,2,3,4\n")
    assert [each.path.name for each in read.images] == ["a.png", "Größe.PNG"]
    save_image(folder / "images" / "deep" / "c.png")
    read = read_text(folder, "c.csv", "deep\\c.png,1,2,3,4\n")
    assert read.images[0].path == folder / "images" / "deep" / "c.png"


def test_images_that_are_in_another_directory_than_the_file_says_are_noted_once(folder):
    for n in range(3):
        save_image(folder / "test" / f"van{n}.png")
    rows = "".join(f"images/van{n}.png,1,2,3,4,car\nimages/van{n}.png,5,6,7,8,car\n" for n in range(3))
    read = read_text(folder, "b.csv", rows + "a.png,1,2,3,4,car\nvan0.png,1,2,3,4,car\n")
    assert len(read) == 4
    (note,) = read.problems
    assert note.kind is ProblemKind.NOTE
    assert "3 images were found by base name only" in note.what
    assert f"images/van0.png as {folder / 'test' / 'van0.png'}" in note.what
    bare = read_text(folder, "c.csv", "van1.png,1,2,3,4,car\n")
    assert not bare.problems


def test_of_two_images_of_one_name_none_is_guessed(folder):
    save_image(folder / "one" / "c.png")
    save_image(folder / "two" / "c.png")
    read = read_text(folder, "b.csv", "a.png,1,2,3,4\nthree/c.png,1,2,3,4\ntwo/c.png,1,2,3,4\n")
    assert [each.path.parent.name for each in read.images] == [folder.name, "two"]
    assert read.problems[0].kind is ProblemKind.MISSING_IMAGE
    assert "2 files have this base name" in read.problems[0].what


@pytest.mark.parametrize(
    "text",
    [
        "a.png,10,20,30,40,car\n",
        "\ufeffpath,x,y,w,h,label\r\na.png,10,20,30,40,car\r\n",
        "a.png;10;20;30;40;car\r\n",
        "label\tx1\ty1\tx2\ty2\tfilename\ncar\t10\t20\t40\t60\ta.png\n",
        "filename,width,height,class,xmin,ymin,xmax,ymax\na.png,200,100,car,10,20,40,60\n",
        '"a.png", 10.0, 20, 3e1, "40", "car"\n',
        "path;x;y;w;h;label\na.png;10,0;20;30;40;car\n",
        "path,x,y,w,h,label\na.png,10,20,30,40,car\n".encode("utf-16"),
    ],
    ids=["plain", "bom-crlf", "semicolons", "tabs-corners", "tensorflow", "quoted", "decimal-comma", "utf-16"],
)
def test_tables_of_many_kinds_hold_the_same_box(folder, text):
    read = read_text(folder, "b.csv", text)
    assert not read.problems
    assert read.images[0].boxes.tolist() == [[10, 20, 40, 60]]
    assert read.classes == ("car",)


def test_a_table_without_the_columns_it_needs_is_an_error(folder):
    with pytest.raises(AnnotationError, match=r"has the columns path, x, y, label; expected path, and x, y, w, h"):
        read_text(folder, "b.csv", "path,x,y,label\na.png,1,2,car\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"b\.csv has no rows; expected rows such as"),
        (HEAD, r"b\.csv has only a header; expected rows such as"),
        (HEAD + "a.png,1,2\na.png,1,3\n", r"b\.csv has no annotated images.*b\.csv:2: got 3 columns; expected"),
        ("a.png;1;2\n", r"b\.csv:1: got 3 columns"),
        ("x,y,w,h,path\n1\n", r"b\.csv:2: got 1 column;"),
    ],
)
def test_a_table_without_images_is_named_with_its_first_problem(folder, monkeypatch, text, message):
    monkeypatch.chdir(folder)
    (folder / "b.csv").write_text(text)
    with pytest.raises(AnnotationError, match=message):
        read_annotations("b.csv")


def test_info_dat_with_spaces_comments_and_bad_rows(folder):
    save_image(folder / "my 2 cars.png")
    (folder / "bg.txt").write_bytes("\ufeff# none\r\nempty.png\r\n".encode())
    save_image(folder / "empty.png")
    read = read_text(
        folder,
        "info.dat",
        "# comment\r\nmy 2 cars.png 2 10 20 30 40 50 20 30 40\r\na.png  1  1 2 30 40\r\na.png 2 1 2 3 4\r\na.png\r\n",
    )
    assert {each.path.name: len(each) for each in read.images} == {"my 2 cars.png": 2, "a.png": 1, "empty.png": 0}
    assert problem_lines(read, folder) == [
        "info.dat:4: got 'a.png 2 1 2 3 4'; expected: image, count, and x y width height of each object",
        "info.dat:5: got 'a.png'; expected: image, count, and x y width height of each object",
    ]


def voc(*objects, name="a.png", size=(200, 100)):
    things = "".join(
        f"<object><name>{label}</name><difficult>{difficult}</difficult><bndbox><xmin>{box[0]}</xmin>"
        f"<ymin>{box[1]}</ymin><xmax>{box[2]}</xmax><ymax>{box[3]}</ymax></bndbox></object>"
        for label, difficult, box in objects
    )
    return (
        f"<annotation><filename>{name}</filename><size><width>{size[0]}</width><height>{size[1]}</height></size>"
        f"{things}</annotation>"
    )


def test_voc_counts_pixels_from_one_and_includes_the_last(folder):
    read = read_text(folder, "a.xml", voc(("car", 0, (1, 1, 200, 100)), ("car", 1, (11, 21, 40, 60))))
    assert read.images[0].objects.tolist() == [[0, 0, 200, 100]]
    assert read.images[0].ignored.tolist() == [[10, 20, 40, 60]]


def test_voc_faults_are_reported(folder):
    read_text(folder, "a.xml", voc(("car", 0, (1, 1, 50, "x")), ("", 0, (1, 1, 9, 9)), ("car", 0, (1, 1, 9, 9))))
    (folder / "b.xml").write_text("<annotation><object>")
    (folder / "c.xml").write_text('<!DOCTYPE a [<!ENTITY b "c">]><annotation>&b;</annotation>')
    (folder / "d.xml").write_text("<html/>")
    save_image(folder / "e.jpg", 100, 200)
    (folder / "e.xml").write_text(voc(("car", 0, (1, 1, 9, 9)), name="missing.png"))
    read = read_annotations(folder)
    assert read.n_boxes == 2
    a, b, c, d, e, f = problem_lines(read, folder)
    assert a == "a.xml: object 1: <bndbox> has 1, 1, 50, x; expected numbers for xmin, ymin, xmax, ymax"
    assert b == "a.xml: object 2: <name> is empty; expected a class"
    assert c.startswith("b.xml: b.xml is truncated XML: it ends in line")
    assert d.startswith("c.xml: c.xml declares a DTD or an entity (DTDForbidden")
    assert e == "d.xml: expected <annotation>, got <html>"
    assert f.startswith("e.xml: e.jpg has 100 x 200 pixels, but the file states 200 x 100; check")


def yolo_folder(folder, labels, data="names: [car, person]\n"):
    save_image(folder / "images" / "a.png")
    (folder / "labels").mkdir()
    (folder / "labels" / "a.txt").write_text(labels)
    if data:
        (folder / "data.yaml").write_text(data)
    return read_annotations(folder)


def test_yolo_lines_of_all_kinds(tmp_path):
    read = yolo_folder(
        tmp_path,
        "0 0.5 0.5 0.1 0.2\n1 0.5 0.5 0.1 0.2 0.99\n0 0.1 0.1 0.3 0.1 0.2 0.4\n7 0.5 0.5 0.1 0.2\n"
        "0 0.5 0.5 0.1\ncar 0.5 0.5 0.1 0.2\n0 nan 0.5 0.1 0.2\n0 0.5 0.5 0 0.2\n1.0 2.5 0.5 0.1 0.2\n",
    )
    assert read.counts == {"car": 2, "person": 1, "7": 1}
    assert np.allclose(read.images[0].boxes[:3], [[90, 40, 110, 60], [90, 40, 110, 60], [20, 10, 60, 40]])
    assert problem_lines(read, tmp_path) == [
        "labels/a.txt:4: class 7 has no name; it is named '7'",
        "labels/a.txt:5: got '0 0.5 0.5 0.1'; expected: class x y width height, as numbers",
        "labels/a.txt:6: got 'car 0.5 0.5 0.1 0.2'; expected: class x y width height, as numbers",
        "labels/a.txt:7: got '0 nan 0.5 0.1 0.2'; expected: class x y width height, as numbers",
        "labels/a.txt:8: box (100, 40, 100, 60) in a.png: width or height is not positive; dropped",
        "labels/a.txt:9: box (490, 40, 510, 60) in a.png: outside the 200 x 100 image; dropped",
    ]


def test_shares_of_an_image_are_pixels_without_noise(tmp_path):
    boxes = [[13.0, 7, 57, 41], [1, 2, 100, 33], [10.5, 20.25, 30, 40]]
    rows = [((x1 + x2) / 400, (y1 + y2) / 200, (x2 - x1) / 200, (y2 - y1) / 100) for x1, y1, x2, y2 in boxes]
    read = yolo_folder(tmp_path, "".join(f"0 {' '.join(map(repr, row))}\n" for row in rows))
    assert read.images[0].boxes.tolist() == boxes
    write_annotations(read, tmp_path / "voc", "voc")
    assert "<ymax>41</ymax>" in (tmp_path / "voc" / "a.xml").read_text()


def test_a_yolo_entry_too_long_for_a_file_name_is_a_part_that_is_missing(tmp_path):
    with pytest.raises((AnnotationError, DataNotFoundError)):
        yolo_folder(tmp_path, "0 0.5 0.5 0.1 0.2\n", data=f"train: {'x' * 5000}\nnames: [car]\n")


def test_yolo_without_yaml_numbers_its_classes_and_takes_classes_txt(tmp_path):
    assert yolo_folder(tmp_path / "one", "3 0.5 0.5 0.1 0.2\n", data="").classes == ("3",)
    save_image(tmp_path / "two" / "a.png")
    (tmp_path / "two" / "a.txt").write_text("1 0.5 0.5 0.1 0.2\n")
    (tmp_path / "two" / "classes.txt").write_text("car\nperson\n")
    assert read_annotations(tmp_path / "two").counts == {"car": 0, "person": 1}


@pytest.mark.parametrize(
    "data",
    [
        "path: set\ntrain: images/train\nval: images/val\nnames:\n  0: car\n",
        "train: ../set/images/train\nval: set/images/val\nnames: [car]\n",
        "train: set/train.txt\nval: [set/images/val]\nnames: [car]\nnc: 1\n",
    ],
)
def test_data_yaml_names_its_images_in_several_ways(tmp_path, data):
    for part in ("train", "val"):
        save_image(tmp_path / "set" / "images" / part / f"{part}.png")
        (tmp_path / "set" / "labels" / part).mkdir(parents=True)
        (tmp_path / "set" / "labels" / part / f"{part}.txt").write_text("0 0.5 0.5 0.1 0.2\n")
    (tmp_path / "set" / "train.txt").write_text("./images/train/train.png\n./images/train/gone.png\n")
    (tmp_path / "data.yaml").write_text(data)
    read = read_annotations(tmp_path / "data.yaml")
    assert {each.split: each.path.stem for each in read.images} == {"train": "train", "val": "val"}
    assert read.counts == {"car": 2}


def test_labels_without_an_image_are_reported(tmp_path):
    (tmp_path / "labels").mkdir(parents=True)
    (tmp_path / "labels" / "gone.txt").write_text("0 0.5 0.5 0.1 0.2\n")
    assert problem_lines(yolo_folder_again(tmp_path), tmp_path) == ["labels/gone.txt: image not found: 'gone.*'"]


def yolo_folder_again(folder):
    save_image(folder / "images" / "a.png")
    (folder / "labels" / "a.txt").write_text("0 0.5 0.5 0.1 0.2\n")
    (folder / "data.yaml").write_text("names: [car]\n")
    return read_annotations(folder)


def test_yaml_that_grows_without_end_is_an_error(tmp_path):
    levels = "".join(f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 9)}]\n" for i in range(1, 30))
    with pytest.raises(AnnotationError, match="names of type list; expected"):
        yolo_folder(tmp_path, "", data="x0: &x0 [lol]\n" + levels + "names: *x29\n")


def test_coco_faults_are_reported(folder):
    table = {
        "images": [{"id": 1, "file_name": "a.png"}, {"id": 1, "file_name": "b.png"}, {"file_name": "c.png"}, 5],
        "categories": [{"id": 1, "name": "car"}, {"id": 2}],
        "annotations": [
            {"image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4]},
            {"image_id": 9, "category_id": 1, "bbox": [1, 2, 3, 4]},
            {"image_id": 1, "category_id": 1, "bbox": [1, 2, 3]},
            {"image_id": 1, "category_id": 1, "bbox": [1, 2, 3, float("nan")]},
            {"image_id": 1, "category_id": 8, "bbox": [1, 2, 3, 4]},
            {"image_id": 1, "category_id": 1, "segmentation": [[10, 10, 50, 10, 50, 40]]},
            {"image_id": [], "category_id": 1, "bbox": [1, 2, 3, 4]},
            "nothing",
        ],
    }
    read = read_text(folder, "set.json", json.dumps(table))
    assert read.counts == {"car": 2, "8": 1}
    assert read.images[0].boxes[2].tolist() == [10, 10, 50, 40]
    assert [line.removeprefix("set.json: ")[:40] for line in problem_lines(read, folder)] == [
        "an element of images is not a JSON objec",
        "images[1] has the id 1 of an earlier ima",
        "images[2] has no file_name or no id",
        "categories[1] has no id or no name",
        "an element of annotations is not a JSON ",
        "annotations[1] has image_id 9, which is ",
        "annotations[2] has bbox [1, 2, 3]; expec",
        "annotations[3] has bbox [1, 2, 3, nan]; ",
        "category 8 has no name; it is named '8'",
        "annotations[6] has image_id [], which is",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "is not COCO: expected lists named images and annotations, got list"),
        ('{"a": 1}', "got a"),
        ('{"images": [], "annotations": []}', "no annotated images in the format coco"),
    ],
)
def test_what_is_not_coco_is_an_error(folder, text, message):
    with pytest.raises(AnnotationError, match=message):
        read_text(folder, "set.json", text)


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
@pytest.mark.parametrize("suffix", ["jpg", "png", "tif", "webp"])
def test_shares_are_of_the_upright_image(tmp_path, orientation, suffix):
    """An image of 200 x 100 as stored; orientations 6 and 8 show it as 100 x 200."""
    from whet.io.image_files import read_grey

    path = save_image(tmp_path / f"a.{suffix}", orientation=orientation)
    (tmp_path / "a.txt").write_text("0 0.5 0.5 0.5 0.5\n")
    (one,) = read_annotations(tmp_path).images
    assert one.shape == read_grey(path).shape
    if suffix != "tif":  # Pillow does not show a lying TIFF upright, and ours has to be what is shown
        assert one.boxes.tolist() == ([[25, 50, 75, 150]] if orientation > 4 else [[50, 25, 150, 75]])


def test_formats_are_distinguished_and_doubt_is_an_error(tmp_path):
    for name in ("cars", "people"):
        save_image(tmp_path / "crops" / name / "1.png")
    assert detect_format(tmp_path / "crops") == "crops"
    assert read_annotations(tmp_path / "crops").counts == {"cars": 1, "people": 1}
    save_image(tmp_path / "both" / "a.png")
    (tmp_path / "both" / "a.txt").write_text("0 0.5 0.5 0.1 0.2\n")
    (tmp_path / "both" / "a.xml").write_text(voc(("car", 0, (1, 1, 9, 9))))
    with pytest.raises(AnnotationError, match=r"could be yolo or voc; set the format \(format=, --format or --from\)"):
        read_annotations(tmp_path / "both")
    assert read_annotations(tmp_path / "both", "voc").classes == ("car",)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataNotFoundError, match="is empty"):
        read_annotations(tmp_path / "empty")
    (tmp_path / "empty" / "todo.md").touch()
    with pytest.raises(AnnotationError, match="no annotations in a known format"):
        read_annotations(tmp_path / "empty")
    with pytest.raises(AnnotationError, match="unknown format 'coca'; expected one of coco, yolo"):
        read_annotations(tmp_path / "both", "coca")
    with pytest.raises(DataNotFoundError, match="no such file or directory"):
        read_annotations(tmp_path / "nowhere")


def test_text_files_are_known_by_their_first_line(folder):
    assert detect_format(_written(folder / "x.txt", "a.png 1 2 3 4 5\n")) == "opencv"
    assert detect_format(_written(folder / "y.txt", "a.png,2,3,4,5\n")) == "csv"
    with pytest.raises(AnnotationError, match="no annotations in a known format"):
        detect_format(_written(folder / "z.txt", "0 0.5 0.5 0.1 0.2\n"))


def _written(path, text):
    path.write_text(text)
    return path


def test_what_is_there_is_not_overwritten(folder):
    read = read_text(folder, "b.csv", "a.png,1,2,3,4\n")
    (folder / "set.json").write_text("precious")
    with pytest.raises(AnnotationError, match="already exists"):
        write_annotations(read, folder / "set.json")
    assert (folder / "set.json").read_text() == "precious"
    write_annotations(read, folder / "set.json", replace=True)
    assert read_annotations(folder / "set.json").n_boxes == 1


def test_several_classes_do_not_fit_into_info_dat(folder):
    read = read_text(folder, "b.csv", "a.png,1,2,3,4,car\na.png,1,2,3,4,dog\n")
    with pytest.raises(AnnotationError, match=r"choose one \(--class NAME\): car \(1 box\), dog \(1 box\)"):
        write_annotations(read, folder / "opencv", "opencv")
    assert not (folder / "opencv").exists()


def test_a_class_is_chosen_by_name_and_the_others_are_reported(folder):
    read = read_text(
        folder, "b.csv", HEAD + "a.png,1,2,3,4,car,0\na.png,9,9,9,9,dog,0\na.png,20,20,9,9,dog,1\na.png,50,5,9,9,,1\n"
    )
    cars = read.select("car")
    assert cars.counts == {"car": 1}
    assert cars.images[0].ignored.tolist() == [[50, 5, 59, 14]]  # a region to be ignored by every class
    assert str(cars.problems[-1]) == "other classes count as background for car: 1 box of dog"
    with pytest.raises(AnnotationError, match=r"unknown class 'cat'; available classes: car \(1 box\), dog \(1 box\)"):
        read.select("cat")
    with pytest.raises(AnnotationError, match="several classes; choose one"):
        read.select()
    assert cars.select().counts == {"car": 1}


def test_a_million_bad_rows_are_counted_and_not_kept(folder):
    read = read_text(folder, "b.csv", "a.png,1,2,3,4,car\n" + "a.png,bad\n" * 30_000)
    assert len(read.problems) == MAX_PROBLEMS + 1
    assert str(read.problems[-1]) == "and 20,000 more problems"


def test_no_images_are_not_written(tmp_path):
    with pytest.raises(AnnotationError, match="without images"):
        write_annotations(Annotations((), ()), tmp_path / "a.json")
