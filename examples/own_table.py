"""Train a very deep net on a table of your own: rows of numbers, labels of any kind.

    python3 -m examples.own_table
"""

from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from highway_suite import HighwayClassifier

wine = load_wine()
names = wine.target_names[wine.target]
X, X_test, y, y_test = train_test_split(wine.data, names, random_state=0)
net = make_pipeline(StandardScaler(), HighwayClassifier(depth=100, random_state=0))
net.fit(X, y)
print(f"100 blocks: {net.score(X_test, y_test):.0%} of the test rows are right")
print("the first of them:", net.predict(X_test[:1])[0])
