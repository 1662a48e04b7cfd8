"""Images of a project."""

from tests.web.studios import scenes

from whet.web.gallery import Gallery
from whet.web.store import Store


def test_files_that_cannot_be_read_are_named_and_the_others_are_added(tmp_path, caplog):
    scenes(tmp_path / "scenes")
    (tmp_path / "scenes" / "broken.png").write_bytes(b"no image")
    gallery = Gallery(Store(tmp_path / "p.studio"))
    for _ in gallery.add_files(sorted((tmp_path / "scenes").iterdir())):
        pass
    assert len(gallery) == 4
    (said,) = caplog.messages
    assert "broken.png" in said


def test_groups_are_those_of_the_images_that_the_caller_has_while_others_are_added(tmp_path):
    scenes(tmp_path / "scenes")
    gallery = Gallery(Store(tmp_path / "p.studio"))
    parts = gallery.add_files(sorted((tmp_path / "scenes").iterdir()), at_once=2)
    next(parts)
    former = list(gallery)
    next(parts)
    assert gallery.groups(list(gallery)).keys() == {image.id for image in gallery}
    assert gallery.groups(former).keys() == {image.id for image in former}
    assert len(former) < len(gallery)
