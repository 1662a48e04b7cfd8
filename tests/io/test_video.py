"""Video in and out, through real files."""

import io
import sys

import numpy as np
import pytest
from PIL import Image

from whet.errors import MissingExtraError, VideoError, VideoNotFoundError
from whet.io.detection_files import FrameLines
from whet.io.video import MAX_UNREADABLE, VideoWriter, read_frames

pytest.importorskip("av")

SIZE = (48, 64)

FIELDS = {"frame", "seconds", "tracked", "score", "accepted", "boxes", "scores"}
FIELDS |= {"learned", "rolled_back", "weight_change"}


def png():
    file = io.BytesIO()
    Image.new("L", (8, 6)).save(file, "PNG")
    return file.getvalue()


def images(n):
    """Frames that a codec keeps apart: each has its own grey, with a white corner."""
    for number in range(n):
        image = np.full((*SIZE, 3), 10 * number, np.uint8)
        image[:8, :8] = 255
        yield image


@pytest.fixture
def film(tmp_path):
    path = tmp_path / "film.mp4"
    with VideoWriter(path, 10) as writer:
        for image in images(12):
            writer.write(image)
    return path


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "frames"
    made.mkdir()
    for number, image in enumerate(images(12)):
        Image.fromarray(image).save(made / f"frame{number}.png")  # frame10 sorts before frame2 by its letters
    return made


def greys(frames):
    return [round(float(frame.image[20:, 20:].mean()) / 10) for frame in frames]


def test_what_was_written_is_read_again(film):
    frames = list(read_frames(film))
    assert [frame.number for frame in frames] == list(range(12))
    assert greys(frames) == list(range(12))
    assert frames[0].image.shape == (*SIZE, 3)
    assert frames[3].seconds == pytest.approx(0.3, abs=0.01)
    assert frames[0].rate == pytest.approx(10)


def test_a_folder_is_read_in_the_order_of_its_numbers(folder):
    assert greys(read_frames(folder)) == list(range(12))
    assert next(read_frames(folder)).rate == 25


@pytest.mark.parametrize("source", ["film", "folder"])
def test_some_of_the_frames(source, request):
    path = request.getfixturevalue(source)
    assert [frame.number for frame in read_frames(path, every=4, start=1, stop=10)] == [1, 5, 9]
    assert next(iter(read_frames(path, resize=(32, 20)))).image.shape[:2] == (20, 32)


def test_one_frame_is_in_memory_at_a_time(folder, monkeypatch):
    read = []
    from whet.io import video

    monkeypatch.setattr(video, "as_array", lambda path: read.append(path) or np.zeros((4, 4), np.uint8))
    frames = read_frames(folder)
    next(frames)
    assert len(read) == 1


@pytest.mark.parametrize("limits", [{"every": 0}, {"start": -1}, {"start": 5, "stop": 5}, {"resize": (0, 10)}])
def test_limits_that_make_no_sense_are_named(folder, limits):
    with pytest.raises(VideoError, match="expected"):
        next(read_frames(folder, **limits))


def test_what_is_no_video_is_said(tmp_path):
    text = tmp_path / "film.mp4"
    text.write_text("this is not a video")
    with pytest.raises(VideoError, match="cannot be opened as a video"):
        next(read_frames(text))
    with pytest.raises(VideoNotFoundError, match=r"no such file or directory: .*nothing\.mp4"):
        next(read_frames(tmp_path / "nothing.mp4"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(VideoNotFoundError, match="has no images"):
        next(read_frames(tmp_path / "empty"))


def test_a_file_that_was_cut_short_is_said(film):
    whole = film.read_bytes()
    film.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(VideoError):
        list(read_frames(film))


def test_sound_is_no_video(tmp_path):
    import wave

    with wave.open(str(tmp_path / "sound.wav"), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(bytes(1600))
    with pytest.raises(VideoError, match="no video stream"):
        next(read_frames(tmp_path / "sound.wav"))


def test_a_broken_frame_of_a_folder_ends_it_with_its_number(folder):
    (folder / "frame7.png").write_bytes(b"\x89PNG broken")
    frames = read_frames(folder)
    assert [next(frames).number for _ in range(7)] == list(range(7))
    with pytest.raises(VideoError, match="frame 7 cannot be read"):
        next(frames)


def test_a_broken_frame_is_skipped_and_reported_where_that_is_asked_for(folder):
    (folder / "frame7.png").write_bytes(b"\x89PNG broken")
    errors = []
    assert [frame.number for frame in read_frames(folder, skipped=errors.append)] == [0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11]
    (error,) = errors
    assert "frame 7 cannot be read" in str(error)
    errors.clear()
    assert [frame.number for frame in read_frames(folder, every=2, skipped=errors.append)] == [0, 2, 4, 6, 8, 10]
    assert not errors  # it was not to be looked at


def test_too_many_broken_frames_in_a_row_are_an_end(tmp_path):
    for number in range(2 * MAX_UNREADABLE + 10):
        is_whole = number in (0, 1, MAX_UNREADABLE + 2)  # as many as may be broken lie between the last two
        (tmp_path / f"{number}.png").write_bytes(png() if is_whole else b"broken")
    errors = []
    frames = read_frames(tmp_path, skipped=errors.append)
    assert [next(frames).number for _ in range(3)] == [0, 1, MAX_UNREADABLE + 2]
    with pytest.raises(VideoError, match=r"101 consecutive unreadable frames.*frame 103"):
        next(frames)
    assert len(errors) == 2 * MAX_UNREADABLE + 1


def test_a_folder_of_broken_frames_has_none(tmp_path):
    (tmp_path / "0.png").write_bytes(b"broken")
    with pytest.raises(VideoError, match="no readable frame from number 0 on: frame 0"):
        list(read_frames(tmp_path, skipped=lambda _: None))


def damage(path, number):
    """Zeros in place of one packet of a video."""
    import av

    with av.open(str(path)) as container:
        packet = [packet for packet in container.demux(video=0) if packet.size][number]
        start, size = packet.pos, packet.size
    data = bytearray(path.read_bytes())
    data[start : start + size] = bytes(size)
    path.write_bytes(data)


def test_a_damaged_packet_of_a_video_is_skipped_and_reported(film):
    damage(film, 5)
    errors = []
    frames = list(read_frames(film, skipped=errors.append))
    assert len(errors) == 1
    assert "cannot be read" in str(errors[0])
    assert len(frames) == 11
    assert frames[-1].number == 11
    with pytest.raises(VideoError, match="cannot be read"):
        list(read_frames(film))


def test_beyond_the_last_frame_there_is_none(folder):
    with pytest.raises(VideoError, match="no frame from number 50"):
        next(read_frames(folder, start=50))


def test_there_is_no_such_camera():
    with pytest.raises(VideoError, match="'camera:97' cannot be opened"):
        next(read_frames("camera:97"))


def test_without_pyav_it_is_said_what_to_install(film, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(MissingExtraError, match="pip install av"):
        next(read_frames(film))
    assert len(list(read_frames(folder))) == 12  # images need none


def test_frames_of_other_sizes_are_brought_to_the_first(tmp_path):
    with VideoWriter(tmp_path / "film.mp4") as writer:
        writer.write(np.zeros((31, 33, 3), np.uint8))
        writer.write(np.zeros((60, 50, 3), np.uint8))
    assert [frame.image.shape for frame in read_frames(tmp_path / "film.mp4")] == [(32, 34, 3)] * 2


def test_an_error_on_the_way_leaves_a_whole_video(tmp_path):
    def fail():
        with VideoWriter(tmp_path / "film.mp4") as writer:
            for image in images(3):
                writer.write(image)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert len(list(read_frames(tmp_path / "film.mp4"))) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["film.mp4"]


@pytest.fixture
def full_disk():
    """No file may grow beyond 100 KB: what a full disk does to a writer."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("full_disk")
def test_a_full_disk_is_said_and_leaves_no_half_video(tmp_path, rng):
    def write():
        with VideoWriter(tmp_path / "film.mp4") as writer:
            for _ in range(200):
                writer.write(rng.integers(0, 256, (120, 160, 3), dtype=np.uint8))

    with pytest.raises(VideoError, match=r"film.mp4 cannot be written: File too large"):
        write()
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("full_disk")
@pytest.mark.parametrize("name", ["seen.jsonl", "seen.csv"])
def test_a_full_disk_is_said_of_lines(name, tmp_path):
    line = dict.fromkeys(FIELDS) | {"frame": 10**90, "boxes": []}

    def write():
        with FrameLines(tmp_path / name) as lines:
            for _ in range(2000):
                lines.write(line)

    with pytest.raises(VideoError, match=f"{name} cannot be written: File too large"):
        write()


def test_no_frames_make_no_file_and_wrong_names_are_said(tmp_path):
    with VideoWriter(tmp_path / "film.mp4"):
        pass
    assert not list(tmp_path.iterdir())
    with pytest.raises(VideoError, match="does not exist"):
        VideoWriter(tmp_path / "nowhere" / "film.mp4")
    with pytest.raises(VideoError, match="suffix"):
        VideoWriter(tmp_path / "film.txt")
