"""The reference in README.md is what the source says.

INFILL_UPDATE_GOLDENS=1 python3 -m unittest discover -s tests -p test_reference.py writes it.
"""

import inspect
import os
import pathlib
import sys
import unittest

import reference
from agent import SRC

sys.path.insert(0, str(SRC))

import infill  # noqa: E402

README = pathlib.Path(__file__).resolve().parents[1] / "README.md"

BEGIN, END = "<!-- The reference, from the source: tests/test_reference.py -->\n", "<!-- End of the reference -->\n"


class TheReference(unittest.TestCase):
    def test_readme_has_it(self):
        text = README.read_text(encoding="utf-8")
        before, _, rest = text.partition(BEGIN)
        present, _, after = rest.partition(END)
        self.assertTrue(rest and after, "README.md has no place for the reference")
        if os.environ.get("INFILL_UPDATE_GOLDENS"):
            README.write_text(f"{before}{BEGIN}{reference.reference()}{END}{after}", encoding="utf-8")
        else:
            self.assertEqual(present, reference.reference(), "README.md does not say what the source says")

    def test_signatures_are_those_of_the_package(self):
        for name in ("step", "report", "launch", "plans", "plans_of", "profile_layers", "on_rescale"):
            ours = inspect.signature(getattr(infill, name))
            _, node = reference.find("infill", name)
            plain = ours.replace(
                parameters=[p.replace(annotation=p.empty) for p in ours.parameters.values()],
                return_annotation=ours.empty,
            )
            self.assertEqual(reference.signature(node), str(plain), name)

    def test_every_public_name_is_in_it(self):
        text = reference.reference()
        for name in infill.__all__:
            if name != "__version__":
                self.assertIn(f"- `infill.{name}", text)

    def test_a_name_without_a_text_is_an_error(self):
        bare = reference.ast.parse("def bare(x, *, y=1): pass").body[0]
        self.assertEqual(reference.signature(bare), "(x, *, y=1)")
        with self.assertRaisesRegex(reference.Undocumented, "bare"):
            reference.first_sentence(bare)


if __name__ == "__main__":
    unittest.main()
