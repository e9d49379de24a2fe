"""What a shell offers where names are known; nothing that takes time to load is loaded for it."""


def scenario_names(incomplete: str) -> list[tuple[str, str]]:
    """What-if scenarios that may follow, with what each is; after a + the next part."""
    from gputrace.analysis.pipeline.scenarios import NAMED

    before, plus, _ = incomplete.rpartition("+")
    return [
        (f"{before}{plus}{change.name}{'=' if change.takes else ''}", change.title.replace("{}", "N"))
        for change in NAMED.values()
    ]


def preset_names(incomplete: str) -> list[tuple[str, str]]:
    """Presets of the simulator, with what each is."""
    from gputrace.simulate.scenarios import PRESETS

    return [(name, preset.what) for name, preset in PRESETS.items() if name.startswith(incomplete)]


def log_forms(incomplete: str) -> list[str]:
    """Forms in which a simulated log can be written."""
    from gputrace.simulate.streams import FORMS

    return [form for form in FORMS if form.startswith(incomplete)]


def color_choices(incomplete: str) -> list[str]:
    """When to use colours."""
    from gputrace.render.screen import COLOR_CHOICES

    return [choice for choice in COLOR_CHOICES if choice.startswith(incomplete)]
