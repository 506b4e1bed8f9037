"""Reports for readers: cells and patterns are shared, each other module is one output form."""
