"""docs/reference/grafana-dashboard.json and docs/reference/metrics.md name the series that there are."""
import json
import re

import harness
import test_route

PANELS = json.loads((harness.SOURCE / "docs/reference/grafana-dashboard.json").read_text())
SERIES = re.compile(r"\b(?:vllm:|trireme:|http_)\w+")


class Dashboard(test_route.RouteTest):
    def metrics_after_a_completion(self, *labels):
        """The text of /metrics once these labels are there: a request is counted after its last byte is sent."""
        self.complete(max_tokens=3)
        self.wait_for(lambda: [label for label in labels if f'{label}="' not in self.ask("GET", "/metrics")[1]], [])
        return self.ask("GET", "/metrics")[1]

    def test_every_series_is_there(self):
        self.serve()
        served = self.metrics_after_a_completion("model_name", "finished_reason", "status")
        self.route(f"http://127.0.0.1:{self.port}")
        routed = self.metrics_after_a_completion("server", "result", "end", "status")
        there = {line.split("{")[0].split(" ")[0] for line in (served + routed).splitlines() if line[:1] not in ("#", "")}
        wanted = {name for panel in PANELS["panels"] for target in panel["targets"] for name in SERIES.findall(target["expr"])}
        wanted |= set(SERIES.findall(json.dumps(PANELS["templating"])))
        self.assertGreater(len(wanted), 25)
        self.assertEqual(wanted - there, set())
        # Each has its row in the documents: histograms by their own name.
        page = (harness.SOURCE / "docs/reference/metrics.md").read_text()
        families = re.findall(r"(?m)^# TYPE (\S+)", served + routed)
        self.assertEqual([name for name in families if f"`{name}`" not in page], [])

    def test_panels_do_not_overlap(self):
        places = [tuple(panel["gridPos"][key] for key in "xywh") for panel in PANELS["panels"]]
        cells = [(x + i, y + k) for x, y, w, h in places for i in range(w) for k in range(h)]
        self.assertEqual(len(cells), len(set(cells)))
        self.assertEqual(len({panel["id"] for panel in PANELS["panels"]}), len(places))


if __name__ == "__main__":
    harness.main()
