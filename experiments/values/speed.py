"""The benchmarks."""

from __future__ import annotations

from experiments.values.common import about, percent, table


@about("benchmarks/peers.json")
def peers(record: dict) -> dict[str, str]:
    one, pair = record["one_core"], record["all_cores"]
    parts = record["profile"]["parts"]
    rounds = [pair[name]["times_ours"][end] for end in ("least", "largest")
              for name in ("jax scan", "torch.compile")]

    def times(name, cores=one):
        return f"{cores[name]['times_ours']['median']:.2f}"

    def share(word):
        return percent(sum(part["share"] for name, part in parts.items()
                           if word in name))
    return {"ms": f"{one['ours']['ms_per_step']:.2f}",
            "products_times": f"{1 / one['floor']['times_ours']['median']:.2f}",
            "torch": times("torch"), "compiled": times("torch.compile"),
            "jax": times("jax scan"), "jax_pair": times("jax scan", pair),
            "compiled_pair": times("torch.compile", pair),
            "jax_prepared": f"{pair['jax scan']['times_ours_prepared']:.2f}",
            "compiled_prepared": f"{pair['torch.compile']['times_ours_prepared']:.2f}",
            "least": f"{min(rounds):.2f}", "largest": f"{max(rounds):.2f}",
            "element_wise": share("element-wise"), "products": share("products"),
            "torch_version": one["torch"]["versions"]["torch"].partition("+")[0],
            "jax_version": one["jax scan"]["versions"]["jax"]}


@about("benchmarks/scaling.json")
def scaling(record: dict) -> dict[str, str]:
    law, deepest = record["depth_law"]["median"], record["deepest"]
    search = record["search"][-1]
    return {"ms": f"{1e3 * law['line']['seconds']:.2f}",
            "ms_per_block": f"{1e3 * law['line']['seconds_per_block']:.3f}",
            "deviation": percent(law["largest_deviation"], 1),
            "mb": f"{record['whole_run']['peak_mb']:.0f}",
            "searches": f"{search['times_one']:.1f}", "processes": str(search["jobs"]),
            "deepest_seconds": f"{deepest['seconds']:.0f}",
            "deepest_gb": f"{deepest['peak_mb'] / 1000:.1f}",
            "deepest_accuracy": percent(deepest["test_acc"])}


@about("benchmarks/cold_start.json")
def cold_start(record: dict) -> dict[str, str]:
    found = record["contestants"]
    names = {"torch": "torch", "compiled": "torch.compile", "jax": "jax scan"}
    return {f"{key}_times": f"{found[name]['times_ours']['median']:.1f}"
            for key, name in names.items()} | {
        "ours": f"{found['ours']['seconds']['median']:.1f}",
        "rounds": str(record["repeats"]), "cores": str(record["cores"])}


@about("benchmarks/cold_start.json")
def cold_start_table(record: dict) -> str:
    found = sorted(record["contestants"].items(),
                   key=lambda item: item[1]["seconds"]["median"])
    return table("program|seconds:|times ours:|start, imports:|first epoch:|"
                 "eleven others:", (
        ["this suite" if name == "ours" else name, f"{part['seconds']['median']:.1f}",
         f"{part['times_ours']['median']:.1f}", *(
             ["–"] * 3 if name == "ours" else [f"{p:.1f}" for p in part["parts"]])]
        for name, part in found))


@about("benchmarks/convolution.json")
def convolution_speed(record: dict) -> dict[str, str]:
    """By width for Table 1, else by table; of 19 layers the hours, on one core, that an
    epoch of 50,000 images and the authors' 400 take."""
    nets = {net["width"] or f"table_{net['table']}": net["contestants"]
            for net in record["nets"]}
    rounds = [net["torch"]["times_ours"] for net in nets.values()]
    found = {"least": f"{min(each['least'] for each in rounds):.2f}",
             "largest": f"{max(each['largest'] for each in rounds):.2f}"} | {
        f"{name}_{key}": f"{net[name]['times_ours']['median']:.2f}"
        for key, net in nets.items() for name in ("torch", "floor")}
    epoch = 50_000 / record["batch"] * nets["table_3"]["ours"]["median"]
    return found | {"minutes_19": f"{epoch / 60:.0f}",
                    "hours_19": f"{400 * epoch / 3600:.0f}"}


@about("benchmarks/language_model.json")
def language_model_speed(record: dict) -> dict[str, str]:
    found = record["contestants"]
    return {"ms": f"{1e3 * found['ours']['median']:.0f}",
            "torch": f"{found['torch']['times_ours']['median']:.2f}",
            "floor": f"{found['floor']['times_ours']['median']:.2f}",
            "mb": f"{record['memory_mb'] * 2**20 / 1e6:.0f}"}
