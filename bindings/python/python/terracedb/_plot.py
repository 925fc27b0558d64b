"""The miss-ratio curve as a chart."""


def miss_ratio(database, axes=None):
    points = database.miss_ratio()
    if axes is None:
        from matplotlib import pyplot

        _, axes = pyplot.subplots()
    axes.plot([size / (1 << 20) for size, _ in points], [ratio for _, ratio in points], marker="o")
    axes.set_xlabel("page cache, MiB")
    axes.set_ylabel("estimated miss ratio")
    axes.set_ylim(0, 1)
    axes.set_title(str(database.path))
    return axes
