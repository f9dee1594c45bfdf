"""Random damage to files, as disks, editors, downloads and other programs cause it."""

import random

MAX_BYTES = 1 << 14  # of a damaged file
TOKENS = (
    b"\n", b"\r\n", b"\r", b",", b";", b"\t", b"|", b" ", b'"', b'""', b"#", b"%", b"\x00", b"\x01",
    b"\xef\xbb\xbf", b"\xff\xfe", b"\xe9", b"\xf0\x9f\x98\x80", b"nan", b"inf", b"-1", b"1e999",
    b"99999999999999999999", b"2147483648", b"yes", b"no", b"<b>", b"[", b"]", b"<", b">",
    b"\x1f\x8b",
)  # fmt: skip


class Mutator:
    """Draw damaged versions of files.

    Parameters
    ----------
    corpus : list of bytes
        Valid files; parts of one may be inserted into another.
    random_numbers : random.Random
        Source of randomness.
    """

    def __init__(self, corpus: list[bytes], random_numbers: random.Random) -> None:
        self.corpus = corpus
        self.random = random_numbers
        self.changes = (
            self._flip, self._overwrite, self._insert, self._delete, self._repeat, self._cut,
            self._splice, self._digit,
        )  # fmt: skip

    def mutate(self, content: bytes) -> bytes:
        """Return the content with one to six changes, sometimes unchanged, or random bytes."""
        chance = self.random.random()
        if chance < 0.03:
            return self.random.randbytes(self.random.randrange(200))
        if chance < 0.2:
            return content  # for targets that make changes of their own
        data = bytearray(content)
        for _ in range(self.random.choice((1, 1, 1, 2, 3, 6))):
            self.random.choice(self.changes)(data)
        return bytes(data[: max(MAX_BYTES, 2 * len(content))])

    def _at(self, data: bytearray) -> int:
        return self.random.randrange(len(data) + 1)

    def _span(self, data: bytearray) -> slice:
        begin = self._at(data)
        return slice(begin, begin + self.random.choice((1, 2, 4, 8, 64, 512)))

    def _flip(self, data: bytearray) -> None:
        if data:
            data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)

    def _overwrite(self, data: bytearray) -> None:
        span = self._span(data)
        data[span] = self.random.randbytes(len(data[span]))

    def _insert(self, data: bytearray) -> None:
        at = self._at(data)
        data[at:at] = self.random.choice(TOKENS)

    def _delete(self, data: bytearray) -> None:
        del data[self._span(data)]

    def _repeat(self, data: bytearray) -> None:
        part = bytes(data[self._span(data)])
        at = self._at(data)
        data[at:at] = part * self.random.choice((1, 1, 2, 10))

    def _cut(self, data: bytearray) -> None:
        if self.random.random() < 0.3:
            del data[self._at(data) :]

    def _splice(self, data: bytearray) -> None:
        other = self.random.choice(self.corpus)
        if other:
            begin = self.random.randrange(len(other))
            at = self._at(data)
            data[at:at] = other[begin : begin + self.random.choice((4, 16, 64))]

    def _digit(self, data: bytearray) -> None:
        digits = [at for at, byte in enumerate(data) if 48 <= byte <= 57]
        if digits:
            data[self.random.choice(digits)] = self.random.randrange(48, 58)
