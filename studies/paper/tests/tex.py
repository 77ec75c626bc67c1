"""The paper's tables as they stand in its source. Knows no number of ours.

Rules of booktabs are left out; a cell is a number, a number with its spread (`0.550±.001`), a mark or a text.
"""

import re

__all__ = ["read"]

METHODS = {
    "Fixed-b": "fixed",
    "Random": "random",
    "Heuristic": "heuristic",
    "Ours": "ours",
    "Oracle": "oracle",
}
LEARNERS = {
    "Logistic Reg.": "logistic",
    "SVM (RBF)": "svm",
    "Rand. Forest": "forest",
    "MLP (64)": "mlp",
    "GBM": "xgboost",
}
NAMES = {
    "DeepSeek-V3 x MATH": ("DeepSeek-V3", "MATH"),
    "GPT-4o-mini x MATH": ("GPT-4o-mini", "MATH"),
    "Qwen2.5-7B x MATH": ("Qwen2.5-7B", "MATH"),
    "DeepSeek-V3 x GSM8K": ("DeepSeek-V3", "GSM8K"),
    "DeepSeek (MATH)": ("DeepSeek-V3", "MATH"),
    "GPT-4o-mini (MATH)": ("GPT-4o-mini", "MATH"),
    "Qwen2.5-7B (MATH)": ("Qwen2.5-7B", "MATH"),
    "DeepSeek (GSM8K)": ("DeepSeek-V3", "GSM8K"),
    "DeepSeek-V3": ("DeepSeek-V3", "MATH"),
    "GPT-4o-mini": ("GPT-4o-mini", "MATH"),
    "Qwen2.5-7B": ("Qwen2.5-7B", "MATH"),
}


def cells(text: str, label: str) -> list[list[str]]:
    """The rows of the table with this label, each cell without its TeX."""
    start = text.index(f"\\label{{{label}}}")
    body = text[text.index("\\begin{tabular}", start) : text.index("\\end{tabular}", start)]
    rows = []
    for line in body.split("\n")[1:]:
        if line.rstrip().endswith("\\\\"):
            rows.append([plain(cell) for cell in line.rstrip()[:-2].split("&")])
    return rows


def plain(cell: str) -> str:
    cell = re.sub(r"\\multicolumn\{\d+\}\{\w+\}\{(.*)\}", r"\1", cell.strip())
    for old, new in (
        ("\\textbf{", ""),
        ("{\\tiny", ""),
        ("$\\times$", "x"),
        ("$\\pm$", "±"),
        ("\\!", ""),
        ("\\checkmark", "yes"),
        ("\\ ", " "),
    ):
        cell = cell.replace(old, new)
    return re.sub(r"[{}$]", "", cell).strip()


def number(cell: str) -> float:
    return float(cell.split("±")[0])


def spread(cell: str) -> float | None:
    return float(cell.split("±")[1]) if "±" in cell else None


def main(text: str) -> list[dict]:
    rows, found, pair = cells(text, "tab:main"), [], ()
    for row in rows:
        if row[0] == "":
            pair = tuple(NAMES[cell] for cell in row[1:])
        elif row[0] != "Method":
            for at in range(6):
                model, data = pair[at // 3]
                accuracy, cost = row[1 + 2 * at], row[2 + 2 * at]
                found.append(
                    {
                        "model": model,
                        "data": data,
                        "method": METHODS[row[0]],
                        "budget": (1.5, 2.0, 3.0)[at % 3],
                        "accuracy": number(accuracy),
                        "std": spread(accuracy),
                        "cost": number(cost),
                    }
                )
    order = list(dict.fromkeys((row["model"], row["data"]) for row in found))
    return sorted(found, key=lambda row: order.index((row["model"], row["data"])))


def ablation(text: str, label: str) -> list[dict]:
    return [
        {
            "learner": LEARNERS[row[0]],
            "accuracy": number(row[1]),
            "accuracy_std": spread(row[1]),
            "gap": number(row[2]),
            "gap_std": spread(row[2]),
            "imitation": number(row[3]),
            "imitation_std": spread(row[3]),
            "cost": number(row[4]),
            "cost_std": spread(row[4]),
        }
        for row in cells(text, label)[1:]
    ]


def below(text: str, label: str, names: tuple[str, ...]) -> list[dict]:
    """A table whose first column, the setting, is written once for several rows."""
    found, setting = [], ("", "")
    for row in cells(text, label)[1:]:
        setting = NAMES[row[0]] if row[0] else setting
        values = [cell == "yes" if cell == "yes" else number(cell) for cell in row[1:]]
        found.append({"model": setting[0], "data": setting[1], **dict(zip(names, values, strict=True))})
    return found


def levels(text: str) -> list[dict]:
    found, model = [], ""
    for row in cells(text, "tab:per_level")[1:]:
        model = NAMES[row[0]][0] if row[0] else model
        data = "GSM8K" if row[1] == "GSM8K" else "MATH"
        values = dict(zip(("one", "most", "gain"), map(number, row[2:]), strict=True))
        found.append({"model": model, "data": data, "level": row[1], **values})
    return found


def read(text: str) -> dict[str, list[dict]]:
    """Every table of the paper by its label."""
    return {
        "tab:main": main(text),
        "tab:ablation_classifier_main": ablation(text, "tab:ablation_classifier_main"),
        "tab:per_level": levels(text),
        "tab:oracle_dist": below(text, "tab:oracle_dist", ("budget", "b1", "b2", "b4", "b8", "b16")),
        "tab:oracle_gap": below(text, "tab:oracle_gap", ("budget", "accuracy", "imitation", "gap", "cost")),
        "tab:lambda_sweep": below(text, "tab:lambda_sweep", ("budget", "price", "cost", "error", "monotone")),
        "tab:ablation_classifier": ablation(text, "tab:ablation_classifier"),
    }
