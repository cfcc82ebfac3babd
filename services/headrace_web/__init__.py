"""The web service: an HTTP API and a page for the browser, as a client of Headrace that acts for one person."""
