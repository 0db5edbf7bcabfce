"""HTML and SVG: elements, the components of a page that stands alone, line charts and drawings."""
