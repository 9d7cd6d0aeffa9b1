"""Tests of what makes the site and follows its guides: python3 -m unittest discover -s contrib/site/tests"""

import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "pictures")]

import hook  # noqa: E402
import terminal  # noqa: E402
import try_guide  # noqa: E402


class Lists(unittest.TestCase):
    """MkDocs wants an empty line before a list, and four spaces inside an item."""

    def test_a_list_after_a_line_gets_an_empty_line(self) -> None:
        self.assertEqual(hook._spaced("Rules:\n- one\n- two\n"), "Rules:\n\n- one\n- two\n")

    def test_code_in_an_item_stays_code_in_that_item(self) -> None:
        self.assertEqual(hook._spaced("- one:\n\n      run it\n\ntext\n"), "- one:\n\n        run it\n\ntext\n")

    def test_text_after_a_list_is_no_item(self) -> None:
        self.assertEqual(
            hook._spaced("1. one\n   more\n\ntext\n\n    code\n"), "1. one\n    more\n\ntext\n\n    code\n"
        )

    def test_bars_in_the_code_of_a_table_need_no_escape(self) -> None:
        self.assertEqual(hook._spaced("| `a \\| b` | c |\n"), "| `a | b` | c |\n")

    def test_code_is_left_as_it_is(self) -> None:
        code = "```sh\nrun\n- x\n```\n"
        self.assertEqual(hook._spaced(code), code)


class Links(unittest.TestCase):
    """Links name files of the repository."""

    def setUp(self) -> None:
        hook._sources["how-to/x.md"] = hook.DOCUMENTS / "how-to/x.md"
        hook._sources["repository/slurm/README.md"] = hook.REPOSITORY / "slurm/README.md"

    def relinked(self, markdown: str, page: str) -> str:
        return hook._relinked(markdown, page)

    def test_a_program_becomes_a_page(self) -> None:
        linked = self.relinked("[a](../../examples/paced.py)", "how-to/x.md")
        self.assertEqual(linked, "[a](../repository/examples/paced.py.md)")

    def test_a_document_elsewhere_finds_those_of_docs(self) -> None:
        linked = self.relinked("[a](../docs/users.md#gpus)", "repository/slurm/README.md")
        self.assertEqual(linked, "[a](../../users.md#gpus)")

    def test_links_within_docs_and_to_other_servers_stay(self) -> None:
        for link in ("[a](../users.md)", "[a](https://example.org)", "[a](../missing.md)"):
            self.assertEqual(self.relinked(link, "how-to/x.md"), link)


class Guides(unittest.TestCase):
    """Blocks of guides."""

    def test_blocks_have_what_the_comment_before_says(self) -> None:
        guide = '<!-- try: until a b -->\n```sh\nls\n```\n\n```python title="x.py"\npass\n```\n'
        first, second = try_guide.blocks(guide)
        self.assertEqual((first.language, first.how, first.text), ("sh", "until a b", "ls\n"))
        self.assertEqual((second.how, second.title, second.text), ("", "x.py", "pass\n"))


class Terminals(unittest.TestCase):
    """Drawings of terminals."""

    def test_colours_go_and_long_lines_go_on_below(self) -> None:
        drawing = terminal.drawing("infill x", "\x1b[31mred\x1b[0m <b>\n" + "word " * 40)
        self.assertIn(">red &lt;b&gt;<", drawing)
        self.assertEqual(drawing.count("<text"), 4)


if __name__ == "__main__":
    unittest.main()
