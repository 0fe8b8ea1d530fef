"""Records what a page does that it must not: requests that leave it, console errors, uncaught exceptions."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import Page, Route

HARMLESS_SCHEMES = ("data:", "blob:", "about:")


@dataclass
class Watch:
    """What happened in pages of a browser so far.

    Attributes:
        home: Addresses that may be asked, by prefix.
        external: Requests to anywhere else; none of them left the machine.
        errors: Console errors and uncaught exceptions, in order.
        over: Set once the test has ended: what a page says while it is taken down is not counted.
        ignored: Regular expressions of errors that are not ours; each with its reason where it is added.
    """

    home: tuple[str, ...]
    external: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    over: bool = False

    def __post_init__(self) -> None:
        self._answers: dict[str, Callable[[Any], object]] = {
            "popup": self.follow,
            "request": lambda request: self._note_address(request.url),
            "websocket": lambda socket: self._note_address(socket.url.replace("ws", "http", 1)),
            "console": lambda message: message.type == "error" and self._note_error(_told(message)),
            "pageerror": lambda error: self._note_error(f"uncaught: {error}"),
        }

    def attach(self, page: Page) -> None:
        """Watch a page and the windows that it opens, and refuse what it needs elsewhere."""
        page.route("**/*", self._decide)
        self.follow(page)

    def follow(self, page: Page) -> None:
        """Watch a page and the windows that it opens; what it needs is fetched, and remembered by the browser."""
        for event, answer in self._answers.items():
            page.on(event, answer)

    def leave(self, page: Page) -> None:
        """Watch it no longer."""
        for event, answer in self._answers.items():
            page.remove_listener(event, answer)

    def ignore(self, pattern: str) -> None:
        """Leave out errors that match the regular expression ``pattern``."""
        self.ignored.append(pattern)

    def assert_clean(self) -> None:
        """Fail where a request left the page, or an error was reported."""
        errors = [error for error in self.errors if not any(re.search(pattern, error) for pattern in self.ignored)]
        assert self.external == [], f"requests left the page: {self.external}"
        assert errors == [], "the page reported errors:\n" + "\n".join(errors)

    def _decide(self, route: Route) -> None:
        if self._is_home(route.request.url):
            route.continue_()
        else:
            route.abort()

    def _is_home(self, url: str) -> bool:
        return url.startswith((*HARMLESS_SCHEMES, *self.home))

    def _note_error(self, error: str) -> None:
        if not self.over:
            self.errors.append(error)

    def _note_address(self, url: str) -> None:
        if not self.over and not self._is_home(url):
            self.external.append(url)


def _told(message) -> str:
    place = message.location or {}
    return f"{message.text} ({place.get('url', '')}:{place.get('lineNumber', '')})"
