"""The picture that ``%tensor x --picture`` adds: images pixel by pixel, signals as lines, with how to read them."""

from __future__ import annotations

from tensormagic.renderers.alternatives.tensor_alternative import image_alternative, signals_alternative
from tensormagic.renderers.basics import svg_paths
from tensormagic.renderers.basics.markup import escape, svg_image, tag
from tensormagic.renderers.tensor.tensor_shot_svg import signals_svg
from tensormagic.renderers.tensor.tensor_shot_words import heading, notes
from tensormagic.renderers.tensor.tensor_words import name
from tensormagic.reports import ImageFrame, TensorPicture, TensorReport

SIDE_OF_ONE, SIDE_OF_MANY = 256, 96  # pixels of the page that the longer side of an image takes, about


def shot_html(report: TensorReport) -> str:
    """Return the picture with its heading and notes; nothing where none was asked for or could be made."""
    picture = report.picture
    if picture is None:
        return ""
    drawn = (
        _signals(report, picture)
        if picture.lines
        else "".join(_image(report, picture, each) for each in picture.images)
    )
    head = tag("h3", "Picture ", tag("span", escape(heading(report, picture)), class_="quiet"))
    below = tag("p", escape("; ".join(notes(picture))), class_="quiet")
    return tag("div", head, tag("div", drawn, class_="tm-frames"), below, class_="tm-section tm-shot")


def _signals(report: TensorReport, picture: TensorPicture) -> str:
    return svg_image(signals_svg(picture), signals_alternative(report, picture), class_="tm-signals")


def _image(report: TensorReport, picture: TensorPicture, each: ImageFrame) -> str:
    side = SIDE_OF_ONE if len(picture.images) == 1 else SIDE_OF_MANY
    scale = max(side // max(each.width, each.height), 1)
    title = f"{name(report)}[{each.label}]" if each.label else name(report)
    source = svg_paths.image(each.unpacked(), each.width, each.height)
    size = f'width="{each.width * scale}" height="{each.height * scale}"'
    alt = escape(image_alternative(report, picture, each))
    caption = tag("figcaption", tag("code", escape(title)))
    return tag("figure", f'<img src="{source}" {size} alt="{alt}">', caption)
