# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A file system in memory, packed as a cpio archive of the kind that Linux unpacks when it boots ("newc").

Archives one after the other are unpacked one after the other.
"""

import stat
from collections.abc import Iterable

_DEVICE_CONSOLE = (5, 1)


class Archive:
    """The files of one archive."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._packed = bytearray()

    def add_directory(self, name: str) -> None:
        """Add a directory; what lies in it must follow."""
        self._add(name, stat.S_IFDIR | 0o755)

    def add_file(self, name: str, content: bytes, mode: int = 0o644) -> None:
        """Add a file."""
        self._add(name, stat.S_IFREG | mode, content)

    def add_console(self) -> None:
        """Add the device on which process 1 writes."""
        self._add("dev/console", stat.S_IFCHR | 0o600, device=_DEVICE_CONSOLE)

    def add_modules(self, modules: Iterable[tuple[str, bytes]]) -> None:
        """Add a kernel's modules to /modules, with names that sort in the order in which they are to be loaded."""
        self.add_directory("modules")
        for number, (name, content) in enumerate(modules):
            self.add_file(f"modules/{number:02}-{name}.ko", content)

    def packed(self) -> bytes:
        """Return the whole archive."""
        end = Archive()
        end._add("TRAILER!!!", 0)
        return bytes(self._packed + end._packed)

    def _add(self, name: str, mode: int, content: bytes = b"", device: tuple[int, int] = (0, 0)) -> None:
        """Header of 8-digit hexadecimal fields, name, content; name and content each padded to four bytes.

        Fields: inode, mode, uid, gid, links, mtime, size, device major and minor, device number major and minor,
        length of the name with its NUL, checksum.
        """
        text = name.encode()
        fields = (0, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(text) + 1, 0)
        head = b"070701" + b"".join(b"%08x" % field for field in fields) + text + b"\0"
        for part in (head, content):
            self._packed += part + bytes(-len(part) % 4)
