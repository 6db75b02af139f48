"""Search logs as evidence: which queries shift, and what another ranking would have brought, before anything is switched on."""
