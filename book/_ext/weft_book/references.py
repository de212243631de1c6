"""The list of references: a title is a link to its paper, thread or page; no two look the same.

`howpublished` and `eprint` already say where a thing is (arXiv:2205.05198; github.com/owner/name,
pull request 12; docs.example.org/page), so the address is made from them and typed nowhere else.
Two works of one author and year get a letter: NVIDIA 2022a, 2022b.
"""

import re
from collections import defaultdict
from collections.abc import Iterable

from pybtex.database import Entry
from pybtex.plugin import register_plugin
from pybtex.style.formatting.unsrt import Style
from pybtex.style.template import FieldIsMissing, field, href, join, node, optional, sentence

PAPER = re.compile(r"arXiv:(\d{4}\.\d{4,5}|[a-z-]+/\d{7})")
THREADS = {"pull request": "pull", "issue": "issues", "discussion": "discussions"}
THREAD = re.compile(rf"(github\.com/[^/ ,]+/[^/ ,]+),? ({'|'.join(THREADS)})s? (\d+)")
PAGE = re.compile(r"(?:https?://)?((?:[a-z0-9-]+\.)+[a-z]{2,}(?:/[^\s,;]*)?)", re.IGNORECASE)


def link(entry: Entry) -> str | None:
    """Where a work can be read, from what its entry says, or None for a book on a shelf."""
    fields = entry.fields
    if "url" in fields:
        return fields["url"]
    if "doi" in fields:
        return f"https://doi.org/{fields['doi']}"
    where = re.sub(r"\{?\\([_%#&])\}?", r"\1", fields.get("howpublished", ""))  # TeX's escapes
    said = f"arXiv:{fields['eprint']}" if "eprint" in fields else f"{where} {fields.get('note')}"
    if found := PAPER.search(said):
        return f"https://arxiv.org/abs/{found[1]}"
    if found := THREAD.match(where):
        return f"https://{found[1]}/{THREADS[found[2]]}/{found[3]}"
    found = PAGE.match(where)
    return f"https://{found[1].rstrip('.')}" if found else None


def told_apart(entries: Iterable[Entry]) -> dict[str, str]:
    """Key -> year with a letter, of the works that author and year alone would not tell apart."""
    alike = defaultdict(list)
    for entry in entries:
        people = entry.persons.get("author", []) or entry.persons.get("editor", [])
        names = [str(person.last_names) for person in people]
        shown = names[:1] + ["et al."] if len(names) > 2 else names
        year = entry.fields.get("year", "").rstrip("abcdefghijklmnopqrstuvwxyz")
        alike[tuple(shown), year].append(entry.key)
    return {
        key: f"{year}{letters(number)}"
        for (_, year), keys in alike.items()
        if len(keys) > 1
        for number, key in enumerate(sorted(keys))
    }


def letters(number: int) -> str:
    """a, b, … z, aa, ab, …: the letter of the number-th of several."""
    more, one = divmod(number, 26)
    return (letters(more - 1) if more else "") + "abcdefghijklmnopqrstuvwxyz"[one]


@node
def people(children, context: dict, role: str):
    """Who wrote it: A and B; A, B, and C; and A, B, et al., where the entry ends with `others`."""
    persons = context["entry"].persons.get(role)
    if not persons:
        raise FieldIsMissing(role, context["entry"])
    style = context["style"]
    named = [person for person in persons if str(person) != "others"]
    shown = [style.format_name(person, style.abbreviate_names) for person in named]
    if len(named) < len(persons):
        return join(sep=", ")[[*shown, "et al."]].format_data(context)
    return join(sep=", ", sep2=" and ", last_sep=", and ")[shown].format_data(context)


class Linked(Style):
    """pybtex's plain style; titles stay as they were written, and lead to where the work is."""

    def format_title(self, e: Entry, which_field: str, as_sentence: bool = True):
        title, address = field(which_field), link(e)
        linked = href[address, title] if address else title
        return sentence[linked] if as_sentence else linked

    def format_names(self, role: str, as_sentence: bool = True):
        return sentence[people(role)] if as_sentence else people(role)

    def format_web_refs(self, e: Entry):
        return sentence[optional[self.format_eprint(e)]]


def distinguish(app, env, docnames) -> None:
    """Write the letters into the entries, before a page quotes one of them."""
    if "cite" not in env.domains:
        return
    entries = env.get_domain("cite").bibdata.data.entries
    for key, year in told_apart(entries.values()).items():
        entries[key].fields["year"] = year


def setup(app):
    register_plugin("pybtex.style.formatting", "weft", Linked)
    app.connect("env-before-read-docs", distinguish)
