"""A real browser for the tests of the page: Chromium from the Debian packages, driven by Selenium."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from tests.waiting import DEADLINE

T = TypeVar("T")
MISSING = (
    "chromium and chromedriver are needed; on Debian and Ubuntu: apt-get install chromium chromium-driver fonts-dejavu"
)


class Browser:
    """A window, and what the tests do in it."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def size(self, width: int, height: int = 1000) -> None:
        """The page itself is so wide: windows cannot be made as narrow as telephones are."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def dark(self, *, on: bool) -> None:
        features = [{"name": "prefers-color-scheme", "value": "dark" if on else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def go(self, url: str) -> None:
        self.driver.get(url)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def find(self, selector: str) -> WebElement:
        """The first that there is, or soon will be."""
        return self.wait(lambda: next(iter(self.all(selector)), None))

    def text(self, selector: str = "main") -> str:
        return self.find(selector).text

    def click(self, selector: str) -> None:
        self.find(selector).click()

    def wait(self, condition: Callable[[], T | None], seconds: float = DEADLINE) -> T:
        """What a condition gives once it gives something."""

        def looked(_: Any) -> T | bool | None:
            try:
                return condition()
            except WebDriverException:  # of a page that was just left, or is not there yet
                return False

        found: Any = WebDriverWait(self.driver, seconds, poll_frequency=0.05).until(looked)
        return found  # type: ignore[no-any-return] # what the condition gave

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def complaints(self) -> list[str]:
        """What the browser had to say against the page: errors of scripts, and what its policy kept it from."""
        driver: Any = self.driver  # selenium does not say what it gives
        return [entry["message"] for entry in driver.get_log("browser")]

    def is_too_wide(self) -> bool:
        """Whether one has to scroll to the side."""
        return bool(self.run("return document.documentElement.scrollWidth > window.innerWidth"))

    def picture(self, path: Path, most: int = 2400) -> None:
        """All of the page that fits into a tall window."""
        path.parent.mkdir(parents=True, exist_ok=True)
        height = min(int(self.run("return document.documentElement.scrollHeight")), most)
        self.size(int(self.run("return window.innerWidth")), max(height, 400))
        self.driver.save_screenshot(str(path))


@contextmanager
def browsing() -> Generator[Browser]:
    """A browser with nothing in it. RuntimeError if there is none on this machine."""
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        raise RuntimeError(MISSING)
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    with tempfile.TemporaryDirectory(prefix="chromium-") as profile:
        for argument in (
            "--headless=new",
            "--no-sandbox",  # tests may run as root, where there is none
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--disable-background-networking",
            "--no-first-run",
            f"--user-data-dir={profile}",
        ):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        window = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
        try:
            yield Browser(window)
        finally:
            window.quit()
