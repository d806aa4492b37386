"""Writes *.txt and *.json beside itself: small models of LightGBM 4.7 with their predictions and SHAP values."""
import json, os
import lightgbm as lgb, numpy as np

here = os.path.dirname(os.path.abspath(__file__))
rng = np.random.default_rng(3)
n = 1500
X = np.c_[rng.normal(size=n), rng.random(n), np.where(rng.random(n) < .7, 0, rng.normal(size=n)), rng.integers(0, 40, n)]
X[rng.random(n) < .2, 1] = np.nan
m = X[:, 0] + np.nan_to_num(X[:, 1], nan=2) + X[:, 2] + (X[:, 3] % 3 == 0)
y = (rng.random(n) < 1 / (1 + np.exp(1.5 - m))).astype(float)
base = dict(num_leaves=15, min_data_in_leaf=10, verbose=-1, num_threads=1, max_bin=63, min_data_per_group=10, cat_smooth=2)
cases = dict(
    binary=(dict(objective="binary"), 8),
    zero=(dict(objective="binary", zero_as_missing=True), 8),
    squared=(dict(objective="regression"), 8),
    forest=(dict(boosting="rf", bagging_freq=1, bagging_fraction=.6, feature_fraction=.8), 8),
)
probe = X[:60].copy()
probe[:5, 3] = [99, -1, np.nan, 2.5, 0]
probe[5:10, 2] = [np.nan, 0, 1e-36, -1e-36, 1e-34]
for name, (params, rounds) in cases.items():
    d = lgb.Dataset(X, y, categorical_feature=[3])
    b = lgb.train({**base, **params}, d, rounds)
    b.save_model(f"{here}/{name}.txt")
    rows = [[None if np.isnan(v) else v for v in row] for row in probe.tolist()]
    json.dump(dict(rows=rows, raw=b.predict(probe, raw_score=True).tolist(), score=b.predict(probe).tolist(),
                   shap=b.predict(probe, pred_contrib=True).tolist()), open(f"{here}/{name}.json", "w"))
