"""What a user does with the page of the studio: select, judge, draw, look."""

from playwright.sync_api import expect

TIMEOUT = 15_000  # milliseconds; the machine may be busy


class StudioPage:
    def __init__(self, page, studio):
        self.page, self.studio = page, studio
        page.set_default_timeout(TIMEOUT)
        expect.set_options(timeout=TIMEOUT)

    def open(self, image=None, view="picture"):
        """Open an image by its name, or the page as it opens by itself."""
        self.page.goto(self.studio.address + (f"/#{self.studio.ids()[image]}" if image else ""))
        expect(self.page.locator(f".{view}")).to_be_visible()
        if image:
            self.wait_until_shown(image)
        return self

    def wait_until_shown(self, image):
        expect(self.page.locator(".image-name")).to_have_attribute("title", image)
        expect(self.page.locator(".picture")).to_be_visible()

    def choose(self, image):
        """Open an image from the filmstrip; the order by name does not fold near-duplicates."""
        self.page.get_by_role("button", name="Name", exact=True).click()
        self.page.get_by_role("button", name=f"{image}:").click()
        self.wait_until_shown(image)

    def boxes(self, kind="detection"):
        return self.page.locator(f".box[data-kind={kind}]")

    def box_at(self, box):
        """The shown box with these coordinates."""
        return self.page.locator(f'.box[data-key="{",".join(f"{value:.1f}" for value in box)}"]')

    def judge(self, box, word):
        self.box_at(box).click()
        self.page.locator(".tools").get_by_role("button", name=word).click()

    def settle(self):
        """Wait until the server has acknowledged everything."""
        expect(self.page.locator(".topbar .status")).to_have_attribute("data-waiting", "0")

    def on_screen(self, x, y):
        """The position on the screen of a pixel of the image."""
        return self.page.evaluate(
            """([x, y]) => {
                const svg = document.querySelector(".picture");
                const point = new DOMPoint(x, y).matrixTransform(svg.getScreenCTM());
                return [point.x, point.y];
            }""",
            [x, y],
        )

    def draw(self, box):
        """Drag the mouse from the upper left to the lower right corner of a box."""
        mouse = self.page.mouse
        mouse.move(*self.on_screen(*box[:2]))
        mouse.down()
        mouse.move(*self.on_screen((box[0] + box[2]) / 2, (box[1] + box[3]) / 2))
        mouse.move(*self.on_screen(*box[2:]))
        mouse.up()

    def panel(self, name):
        self.page.get_by_role("tab", name=name).click()
        return self.page.get_by_role("tabpanel")

    def detections(self, image):
        """What the server says."""
        return self.studio.get(f"/api/images/{self.studio.ids()[image]}")["detections"]

    def labels(self, image):
        return self.studio.get(f"/api/images/{self.studio.ids()[image]}")["labels"]
