"""Rows of cells: the same description as a table, as SVG, and as text with and without frames."""

from __future__ import annotations

from tensormagic.views.pictures.cells import Cell, Cells, Row

CELLS = Cells(
    [
        Row("", [Cell("j=0"), Cell("j=1", on=True), Cell("j=2")], "heads", title="index"),
        Row(
            "a",
            [Cell("1", "#00224e", "first"), Cell("nan", "#fee838", "second", on=True, bad=True), Cell(share=0)],
            on=True,
        ),
        Row("owner", [Cell("row 0", span=2), Cell("row 1")], "brackets", "tm-rows"),
    ],
    left=60,
    unit=40,
)
PARTLY = Cells([Row("b", [Cell(colour="#56b4e9", share=share) for share in (1, 0.75, 0.25, 0)], look="tm-strip")])


def framed(cells: Cells) -> list[str]:
    """Return the lines with frames."""
    return cells.framed(80)[0].lines()


def test_frames_in_a_terminal():
    """Heads stand over their columns, what is not read is shaded, what is bad has its sign, brackets join columns."""
    assert framed(CELLS) == [
        "          j=0  j=1  j=2",
        "        ┌────┬────┬────┐",
        " a      │  1 │nan!│░░░░│",
        "        └────┴────┴────┘",
        " owner  └─row 0──┘└─1─┘",
    ]


def test_a_cell_of_several_columns_has_one_frame():
    """A float32 lies over four int8."""
    rows = [Row("f", [Cell("0", "#56b4e9", span=4)]), Row("b", [Cell(str(at), "#e69f00") for at in range(4)])]
    assert framed(Cells(rows)) == [
        "    ┌───────────┐",
        " f  │          0│",
        " b  │ 0│ 1│ 2│ 3│",
        "    └──┴──┴──┴──┘",
    ]


def test_what_has_no_room_for_frames_is_shaded():
    """Then there are no frames, and the element that is worked through is pointed at."""
    assert CELLS.framed(20) is None
    lines = CELLS.dense(20, "offset 7").lines()
    assert lines[0].strip() == "▼ offset 7"
    assert PARTLY.dense(9).lines() == [" b  █▓▒░"]
    assert PARTLY.dense(13, apart=True).lines() == [" b   █ ▓ ▒ ░"]
    alike = Cells([Row("b", [Cell(colour="#56b4e9")] * 4)])
    assert alike.dense(9, apart=True).lines() == [" b  █▓█▓"]


def test_a_table_has_the_marks_that_its_style_and_viewer_go_by():
    """Classes of the chosen, the bad, the unread and the partly read cell; colours with an ink that reads on them."""
    html = CELLS.html("tm-grid")
    assert 'class="tm-cells tm-grid"' in html
    assert '<td class="tm-on tm-bad" style="background:#fee838;color:#000" title="second"><b>nan</b>' in html
    assert '<td class="tm-skip"' in html
    assert '<td colspan="2">row 0</td>' in html
    assert '<th class="tm-on">j=1</th>' in html
    assert PARTLY.html("tm-storage", labels=78).count("tm-skip tm-part") == 2


def test_svg_hatches_what_is_not_read_and_fills_from_below():
    """A partly read cell is as high as its share; the chosen one has a ring, and its place can be asked for."""
    svg = CELLS.svg()
    assert svg.count("url(#unread)") == 1
    assert CELLS.chosen == (1, 1)
    assert CELLS.box(1, 1) == (100, 17, 40, 22)
    assert 'x="100" y="17" width="40" height="22" fill="none"' in svg
    assert 'y="16.5" width="46" height="5.5" fill="#56b4e9"' in PARTLY.svg()


def test_long_labels_are_cut():
    """Whatever a tensor is called; the whole name is its tip."""
    name = "a" * 80
    cells = Cells([Row(name, [Cell(name, "#00224e", name)])], left=60)
    assert name not in cells.svg().replace(f"<title>{name}</title>", "")
