"""The report's figures, drawn as SVG: the only place that knows matplotlib. Knows not how numbers come."""
