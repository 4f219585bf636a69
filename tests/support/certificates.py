"""Authorities and certificates for the tests, made by openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.private_servers import binary


class Authority:
    """A certificate authority in a directory of its own."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self.directory = directory
        self.certificate, self.key = self._paths(name)
        self._openssl(
            *("req", "-x509", *self._new_key(self.key), "-subj", f"/CN={name}", "-days", "2"),
            *("-addext", "keyUsage=critical,keyCertSign,cRLSign", "-out", str(self.certificate)),
        )

    def issue(self, name: str, *alternatives: str) -> tuple[Path, Path]:
        """Return the files of a certificate and its key; *alternatives* like `DNS:localhost`."""
        certificate, key = self._paths(name)
        request, extensions = key.with_suffix(".request"), key.with_suffix(".extensions")
        lines = [f"subjectAltName={','.join(alternatives)}"] if alternatives else []
        extensions.write_text("\n".join(["basicConstraints=CA:FALSE", *lines]))
        self._openssl(
            "req", *self._new_key(key), "-subj", f"/CN={name}", "-new", "-out", str(request)
        )
        self._openssl(
            *("x509", "-req", "-in", str(request), "-out", str(certificate), "-days", "2"),
            *("-CA", str(self.certificate), "-CAkey", str(self.key), "-CAcreateserial"),
            *("-extfile", str(extensions)),
        )
        return certificate, key

    def _paths(self, name: str) -> tuple[Path, Path]:
        return self.directory / f"{name}.pem", self.directory / f"{name}.key"

    def _new_key(self, path: Path) -> tuple[str, ...]:
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
        return (*curve, "-nodes", "-keyout", str(path))

    def _openssl(self, *arguments: str) -> None:
        subprocess.run([binary("openssl"), *arguments], check=True, capture_output=True)
