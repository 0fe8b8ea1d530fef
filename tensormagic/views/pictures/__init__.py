"""What is truly a drawing: each picture is a node that draws itself as HTML, text and SVG."""
