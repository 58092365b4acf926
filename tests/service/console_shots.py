"""Pictures of every page, in light and dark and on a phone: `make screenshots` puts them into docs/console/."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from typing import Any

from PIL import Image

DESK = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 800}
CHROMIUM = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := which(name))), None)


@contextmanager
def browser() -> Iterator[Any]:
    """Debian's Chromium: Playwright's own cannot be downloaded everywhere."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield opened
        finally:
            opened.close()


def pages(url: str) -> dict[str, str]:
    return {
        "now": f"{url}/",
        "tables": f"{url}/#/tables",
        "table": f"{url}/#/table/",
        "time": f"{url}/#/time",
        "what-if": f"{url}/#/what-if",
        "bounds": f"{url}/#/what-if?bounds",
        "requests": f"{url}/#/requests",
        "queries": f"{url}/#/queries",
        "health": f"{url}/#/health",
    }


def smaller(picture: Path) -> None:
    """As many colours as a page has."""
    with Image.open(picture) as whole:
        whole.convert("RGB").quantize(200).save(picture, optimize=True)


def shoot(opened: Any, url: str, folder: Path, table: str, only: list[str], looks: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for look in looks:
        context = opened.new_context(
            viewport=PHONE if look == "phone" else DESK,
            color_scheme="dark" if look == "dark" else "light",
            has_touch=look == "phone",
        )
        page = context.new_page()
        page.on("console", lambda message: print(message.type, message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: print("error in the page:", error))
        for name, address in pages(url).items():
            if only and name not in only:
                continue
            page.goto("about:blank")
            page.goto(address + (table if name == "table" else ""))
            page.wait_for_selector(".live")
            if name == "what-if" and look != "phone":
                page.click("text=Compute")
                page.wait_for_selector("text=/is advised|are too few/", timeout=240_000)
            page.wait_for_timeout(1_500)
            page.screenshot(path=str(folder / f"{name}-{look}.png"), full_page=look == "phone" and name == "now")
            smaller(folder / f"{name}-{look}.png")
        context.close()


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--into", type=Path, default=Path("docs/console"))
    asked.add_argument("--url", default="")
    asked.add_argument("--table", default="")
    asked.add_argument("--only", action="append", default=[])
    asked.add_argument("--look", action="append", default=[])
    told = asked.parse_args()
    looks = told.look or ["light", "dark"]
    with browser() as opened:
        if told.url:
            shoot(opened, told.url, told.into, told.table, told.only, looks)
            return
        from tests.service.console_world import served_past, write_project

        with tempfile.TemporaryDirectory() as folder:
            write_project(Path(folder) / "project", 34, tracks=10)
            with served_past(Path(folder) / "project", load=0.2) as (server, warehouse):
                server.start()
                name = told.table or next(iter(warehouse.declared.graph.feeds))
                shoot(opened, server.url, told.into, name, told.only, looks)


if __name__ == "__main__":
    main()
