"""Cells and tables of the page of results."""
NOT_RUN = "not run"


def number(value, pattern="{:,.0f}"):
    return NOT_RUN if value is None else pattern.format(value)


def percent(value):
    return number(None if value is None else 100 * value, "{:.0f} %")


def table(head, rows):
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return lines + [f"| {' | '.join(map(str, row))} |" for row in rows] + [""]
