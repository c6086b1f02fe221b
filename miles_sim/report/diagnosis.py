"""What the doctor found, as lines for a person."""

from collections.abc import Iterator

from miles_sim.verify.doctor import Diagnosis


def diagnosis_lines(found: Diagnosis) -> Iterator[str]:
    """Found, missing, tried; the last line says whether it can be put under contract."""
    if found.name:
        yield f"{found.name} {found.version}, Python {found.python_version}"
        for package, folder in found.where.items():
            yield f"  {package} from {folder}"
        known = {**dict.fromkeys(found.where, "of no known version"), **{n: v for n, v in found.packages.items() if v}}
        known.pop("miles", None)
        if known:
            yield f"on {', '.join(f'{name} {version}' for name, version in known.items())}"
        yield f"can: {', '.join(found.capabilities)}"
        yield from (f"cannot: {name}: {reason}" for name, reason in found.absent.items())
        yield f"stood in for: {', '.join(found.stand_ins) or 'nothing'}"
    if found.trial is not None:
        trial = found.trial
        count = f"{trial.samples} sample{'' if trial.samples == 1 else 's'}"
        yield f"tried: {trial.case}: {count}, {', '.join(trial.status)}, {trial.trained} ids trained"
    if found.well:
        yield f"well: miles-sim verify can put {found.target} under contract"
    else:
        yield f"not well: {found.problem}"
