"""What ``%gpumem --free`` says: the sums, the sentences, and what to do."""

from __future__ import annotations

from tensormagic.renderers.memory import freeing_html, freeing_text
from tensormagic.renderers.memory.freeing_words import gain_words, lead
from tensormagic.reports import DeviceGain
from tests.renderers.samples_freeing import SAMPLES


def test_the_list_says_who_keeps_what_and_how_to_let_go():
    """Both entries with what each frees and shares, the sum of both, and the option that lets go."""
    text = freeing_text.render(SAMPLES["listed"])
    assert text.startswith("Out[12] and the last error (ValueError) keep 64 MiB that nothing else does.\n")
    assert "  the last error (ValueError)  16 MiB  of 40 MiB that it leads to, shared with net and opt\n" in text
    assert "%gpumem --free --yes lets go of them. Your own names" in text
    page = freeing_html.render(SAMPLES["listed"])
    assert "<code>%gpumem --free --yes</code>" in page
    assert "<code>Out[12]</code>" in page


def test_a_drop_says_what_was_measured():
    """Bytes and storages that are gone, and the devices' own figures; no advice any more."""
    text = freeing_text.render(SAMPLES["dropped"])
    assert text.startswith("Let go of Out[12] and the last error (ValueError): 64 MiB freed, in 3 storages.\n")
    assert "  cuda:0: allocated 64 MiB less, reserved 96 MiB less, this process takes 96 MiB less\n" in text
    assert "--yes" not in text


def test_a_drop_that_brought_less_says_so():
    """Where fewer bytes went than were expected, both numbers stand there."""
    assert "3.9 KiB freed, in 1 storage, of 4 KiB that were expected." in lead(SAMPLES["hostile"])


def test_nothing_to_let_go_of():
    """An empty history is one sentence."""
    assert freeing_text.render(SAMPLES["nothing"]) == (
        "Neither an output nor the last error keeps memory that nothing else does.\n"
    )


def test_figures_that_did_not_go_down():
    """A figure that rose or stayed is told as that; one that nobody counts is left out."""
    assert gain_words(DeviceGain("cpu", process=-2048)) == "cpu: this process takes 2 KiB more"
    assert gain_words(DeviceGain("cuda:0", allocated=0)) == "cuda:0: allocated as much as before"
    assert gain_words(DeviceGain("mps")) == ""
