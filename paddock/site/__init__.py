"""The documentation: its pictures, its generated pages, its links, and the site that is built of them."""
