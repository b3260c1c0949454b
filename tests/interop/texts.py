"""texts.py - text in many scripts for tests, the same in every run.

Words are random strings of letters of one script, with the spaces, digits,
punctuation and contractions between them that tokenizers cut at. `anything`
is random characters of all that Unicode 14 assigns. Where Debian's text
package is installed, `english` is prose.
"""
import random
import shutil
import subprocess
import unicodedata

# Letters of Unicode 14 and before, a few marks with them.
SCRIPTS = {
    "latin": (0x61, 0x7a), "accents": (0xc0, 0x24f), "greek": (0x391, 0x3c9),
    "cyrillic": (0x410, 0x44f), "armenian": (0x561, 0x586),
    "hebrew": (0x5d0, 0x5ea), "arabic": (0x621, 0x64a),
    "devanagari": (0x904, 0x94d), "bengali": (0x985, 0x9b9),
    "tamil": (0xb85, 0xbb9), "thai": (0xe01, 0xe3a), "georgian": (0x10d0, 0x10fa),
    "hangul": (0xac00, 0xd7a3), "kana": (0x3041, 0x30fa),
    "han": (0x4e00, 0x9fa5), "gothic": (0x10330, 0x1034a),
    "mathematical": (0x1d400, 0x1d454),
}
BETWEEN = [" "] * 60 + ["  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n ", "\u00a0",
                        "\u2003", "\u3000", "\u2028", "\x85", "\u180e", "\u200b"]
MARKS = [", ", ". ", "! ", "? ", "; ", ": ", " - ", "...", "\u2019s ", "'s ", "'LL ",
         "'Ve ", "'d", "\u3002", "\u060c ", "\u0964 ", " (", ") ", "\"", "/", "://",
         "_", "@", "#", "$", "%", "&&", "++", "<|", "|>", "\u201c", "\u20ac", "\u00b2",
         "\u00bd", "\u0663\u0664", "\u216b", "\u2460", "\U0001f600", "\U0001f468\u200d"
         "\U0001f469\u200d\U0001f467", "\u0301", "\ufe0f", "\u017f", "'\u017f", "\u212a"]


def words(seed, size):
    """About `size` bytes of UTF-8."""
    rng = random.Random(seed)
    common = {name: ["".join(chr(rng.randint(*span)) for _ in
                             range(rng.randint(1, 9))) for _ in range(400)]
              for name, span in SCRIPTS.items()}
    out, n = [], 0
    while n < size:
        name = rng.choice(list(SCRIPTS))
        line = []
        for _ in range(rng.randint(2, 30)):
            kind = rng.random()
            if kind < 0.75:
                word = rng.choice(common[name])
                word = word.capitalize() if rng.random() < 0.2 else word
            elif kind < 0.83:
                word = str(rng.randrange(10 ** rng.randint(1, 8)))
            elif kind < 0.9:
                word = "".join(chr(rng.randint(*SCRIPTS[name]))
                               for _ in range(rng.randint(1, 40)))
            else:
                word = rng.choice(MARKS)
            line += [word, rng.choice(BETWEEN) if name not in ("han", "thai")
                     or rng.random() < 0.1 else ""]
        text = "".join(line)
        n += len(text.encode())
        out.append(text)
    return "\n".join(out)


def anything(seed, size):
    """Random characters that the Unicode of this Python assigns, up to 14."""
    rng = random.Random(seed)
    known = [chr(c) for c in range(0x110000)
             if unicodedata.category(chr(c)) not in ("Cn", "Cs")]
    out, n = [], 0
    while n < size:
        piece = "".join(rng.choice(known) if rng.random() < 0.7
                        else rng.choice(" \n\t'aB1.") for _ in range(500))
        out.append(piece)
        n += len(piece.encode())
    return "".join(out)


def english(size):
    """Prose from Debian's sword-comm-tdavid, or None."""
    if shutil.which("mod2imp") is None:
        return None
    done = subprocess.run(["mod2imp", "TDavid"], capture_output=True, timeout=120)
    text = done.stdout.decode("utf-8", "ignore")
    return text[:size] if len(text) > 1000 else None
