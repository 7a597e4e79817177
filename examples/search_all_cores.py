"""A search over settings on all cores: one process for each net, each with one thread.

    python3 -m examples.search_all_cores
"""

from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV

from highway_suite import HighwayClassifier

X, y = load_digits(return_X_y=True)
net = HighwayClassifier(max_iter=8, random_state=0)
grid = {"depth": [3, 10], "learning_rate": [1e-3, 3e-3]}
search = GridSearchCV(net, grid, cv=3, n_jobs=-1).fit(X[:600], y[:600])
print(f"best: {search.best_params_}, {search.best_score_:.0%} right")
