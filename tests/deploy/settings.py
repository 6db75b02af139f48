"""Which environment variables of files for deployment set something."""

from __future__ import annotations

import re

from swerve.service.config.sections import Config, sections

#: Variables besides SWERVE__SECTION__FIELD: docs/configuration.md and docs/cli.md list them.
OTHERS = {
    "SWERVE_CONFIG", "SWERVE_CACHE_DIR", "SWERVE_UBI_AUTHORIZATION", "SWERVE_TOKEN_KEY", "SWERVE_TOKEN_KEY_OLD", "SWERVE_QUERY_KEY",
    "SWERVE_URL", "SWERVE_API_KEY",
}  # fmt: skip


def known_variables(text: str) -> set[str]:
    """Return the variables of Swerve that a text names; fail when one sets nothing: SWERVE__SECTION__FIELD is a field."""
    found = set(re.findall(r"\bSWERVE_[A-Z0-9_]+", text))
    for name in found:
        if "__" in name:
            _, section, field = name.lower().split("__", 2)
            assert section in sections(), f"{name}: there is no section {section}; {list(Config.__struct_fields__)}"
            assert field in sections()[section].__struct_fields__, f"{name}: [{section}] has no field {field}"
        else:
            assert name in OTHERS, f"{name} is no variable of Swerve"
    return found
