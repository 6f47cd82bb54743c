"""`python -m headstart.gateway.telemetry.monitoring [FOLDER]`: write what Prometheus and Grafana
read, by default to `docs/observability/`: a dashboard, alert rules, how to scrape and link, and the
reference page of all metrics."""

from __future__ import annotations

import sys
from pathlib import Path

from headstart.gateway.telemetry import alerts, grafana, metrics_page

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "observability"
MADE = "# Made by `python -m headstart.gateway.telemetry.monitoring`.\n"

PROMETHEUS = (
    MADE
    + """\
global:
  scrape_interval: 15s
  evaluation_interval: 15s

rule_files:
  - headstart-alerts.yml

scrape_configs:
  - job_name: headstart
    # Prometheus 3 can keep our fixed buckets as native histograms, which take less room:
    #   convert_classic_histograms_to_nhcb: true
    # Where keys are set (api_keys), /metrics needs one:
    #   authorization: {credentials_file: /etc/prometheus/headstart.key}
    static_configs:
      - targets: ["127.0.0.1:8080"]
"""
)
DATASOURCE = (
    MADE
    + """\
# Grafana provisioning: an exemplar's turn opens on the server's own dashboard.
# Prometheus keeps exemplars with --enable-feature=exemplar-storage.
apiVersion: 1
datasources:
  - name: Prometheus
    type: prometheus
    access: proxy
    url: http://127.0.0.1:9090
    jsonData:
      exemplarTraceIdDestinations:
        - name: turn
          url: http://127.0.0.1:8080/dashboard/#turn=$${__value.raw}
          urlDisplayLabel: The turn on its server's dashboard
"""
)


def files() -> dict[str, str]:
    """All files' contents, by name."""
    return {
        "grafana-dashboard.json": grafana.to_json(),
        "grafana-datasource.yml": DATASOURCE,
        "headstart-alerts.yml": alerts.rules(),
        "metrics.md": metrics_page.page(),
        "prometheus.yml": PROMETHEUS,
    }


def write(folder: Path) -> None:
    """All of them, into a folder that is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    write(Path(sys.argv[1]) if sys.argv[1:] else FOLDER)
