"""Tables in Markdown, line by line as figures come."""


def row(*cells):
    """Print one line of a table."""
    print("| " + " | ".join(str(c) for c in cells) + " |", flush=True)


def header(title, *cells):
    """Print the title of a table and the names of its columns."""
    print(f"\n{title}\n")
    row(*cells)
    row(*("---" for _ in cells))
