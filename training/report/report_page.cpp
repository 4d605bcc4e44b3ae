#include "training/report/report_page.h"

#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/observe/markup.h"
#include "engine/observe/progress.h"

namespace trireme {
namespace {

using PageJson = nlohmann::json;

constexpr const char* kStyle = R"(
:root{color-scheme:light dark;--ink:#222;--soft:#666;--paper:#fff;--ground:#f3f4f6;--line:#dfe2e6;--grid:#e4e4e4}
@media (prefers-color-scheme:dark){:root{--ink:#ddd;--soft:#999;--paper:#16191d;--ground:#0d0f12;--line:#2c3138;--grid:#2c3138}}
*{box-sizing:border-box}body{margin:0;background:var(--ground);color:var(--ink);font:14px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:1240px;margin:0 auto;padding:24px 20px 60px}h1{font-size:22px;margin:0 0 16px}h2{font-size:15px;margin:0 0 10px}
section{background:var(--paper);border:1px solid var(--line);border-radius:8px;padding:16px;margin:0 0 18px}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(520px,100%),1fr));gap:18px}.charts section{margin:0;min-width:0}
.scroll{overflow-x:auto}table{font-size:13px;border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:6px 7px;border-bottom:1px solid var(--line);white-space:nowrap;vertical-align:bottom}
th{white-space:normal;color:var(--soft);font-weight:500}th:first-child,td:first-child,.text{text-align:left}tr:last-child td{border-bottom:0}
.chart{width:100%;height:340px}.chart svg{width:100%;height:100%}.legend{min-height:21px;color:var(--soft);font-size:12px}
.head{display:flex;justify-content:space-between;align-items:baseline}.head label{color:var(--soft);font-size:12px}
.dygraph-axis-label{font-size:12px;color:var(--soft)}.dygraph-label{color:var(--soft);font-size:12px;font-weight:400}
.swatch{display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:7px}
pre{overflow-x:auto;font-size:12px;margin:10px 0 0}summary{cursor:pointer}footer{color:var(--soft);font-size:12px}
)";

// Script that replaces each static picture by an interactive chart, and keeps the picture if that
// fails.
constexpr const char* kScript = R"(
const dark = matchMedia('(prefers-color-scheme: dark)').matches;
const palette = dark ? ['#4aa8e0','#f08a3c','#2fc79a','#cc79a7','#e69f00','#56b4e9']
                     : ['#0072b2','#d55e00','#009e73','#cc79a7','#e69f00','#56b4e9'];
const grid = getComputedStyle(document.documentElement).getPropertyValue('--grid');
const short = v => { const a = Math.abs(v);
  if (a >= 1e9) return +(v/1e9).toPrecision(4) + 'G';
  if (a >= 1e6) return +(v/1e6).toPrecision(4) + 'M';
  if (a >= 1e3) return +(v/1e3).toPrecision(4) + 'k';
  return '' + +v.toPrecision(5); };
for (const chart of charts) {
  const place = document.getElementById(chart.id), legend = document.getElementById(chart.id + '-legend');
  const box = document.createElement('div'); box.className = 'chart';
  const series = {}, colors = [], shown = {};
  chart.series.forEach((s, i) => {
    colors.push(palette[s.colour % palette.length] + (s.faint ? '40' : ''));
    series[chart.labels[i + 1]] = s.faint ? {strokeWidth: 1} :
      {strokeWidth: 2, drawPoints: s.points, pointSize: 3};
    shown[chart.labels[i + 1]] = !s.faint;
  });
  place.parentNode.insertBefore(box, place);
  try {
    const graph = new Dygraph(box, chart.rows, {
      labels: chart.labels, colors, series, legend: 'always', labelsDiv: legend,
      connectSeparatedPoints: true, gridLineColor: grid, axisLineColor: grid, ylabel: chart.y_label,
      xlabel: chart.x_label, highlightCircleSize: 3, animatedZooms: true,
      axes: {x: {axisLabelFormatter: short, valueFormatter: short},
             y: {axisLabelFormatter: short, valueFormatter: v => '' + +v.toPrecision(6), axisLabelWidth: 62}},
      legendFormatter: data => data.series.filter(s => shown[s.label]).map(s => {
        const e = document.createElement('span'); e.textContent = s.label;
        return '<span class="swatch" style="background:' + s.color + '"></span>' + e.innerHTML +
          (data.x == null || s.yHTML == null ? '' : ' <b>' + s.yHTML + '</b>') + '&emsp;';
      }).join('') + (data.x == null ? '' : chart.x_label + ' <b>' + data.xHTML + '</b>')
    });
    place.remove();
    document.getElementById(chart.id + '-log').onchange =
      e => graph.updateOptions({logscale: e.target.checked});
  } catch (e) { box.remove(); }
}
)";

std::string fixed(double value, int digits) {
  if (!std::isfinite(value)) return "–";
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.*f", digits, value);
  return buffer;
}

std::string cell(const std::string& value, bool is_text = false) {
  return concat(is_text ? "<td class=\"text\">" : "<td>",
                escape_markup(value.empty() ? "–" : value), "</td>");
}

std::string summary_row(const RunRecord& run) {
  const RunSummary s = summarize(run);
  std::string last, best;
  for (const ValidationSummary& set : s.validation) {
    const std::string name =
        concat(last.empty() ? "" : ", ", set.name, set.name.empty() ? "" : " ");
    last += name + fixed(set.last, 4);
    best += concat(name, fixed(set.best, 4), " at ", set.best_step);
  }
  std::string row = "<tr>" + cell(run.name, true) + cell(s.model, true) + cell(s.batch);
  const bool unfinished = s.steps < s.planned_steps;
  row += cell(unfinished ? concat(s.steps, " of ", s.planned_steps) : text(s.steps)) +
         cell(format_count(s.tokens));
  row += cell(fixed(s.loss, 4)) + cell(last) + cell(best);
  row += cell(std::isfinite(s.tokens_per_second) ? format_count(s.tokens_per_second) : "");
  row += cell(fixed(s.step_ms, 1));
  row += cell(s.mfu.has_value() ? fixed(*s.mfu * 100, 1) + " %" : "");
  return row + "</tr>\n";
}

std::string summary_table(const std::vector<RunRecord>& runs) {
  std::string out =
      "<section><h2>Runs</h2><div class=\"scroll\"><table><tr><th>run</th><th "
      "class=\"text\">model</th>"
      "<th>batch</th><th>steps</th><th>tokens</th><th>loss, last 50 steps</th>"
      "<th>validation loss</th><th>best, at step</th><th>tokens/s, median</th>"
      "<th>ms/step</th><th>MFU</th></tr>\n";
  for (const RunRecord& run : runs) out += summary_row(run);
  return out + "</table></div></section>\n";
}

// Number with six significant digits, which are enough for a chart and take a third of the bytes.
PageJson rounded(double value) {
  if (!std::isfinite(value)) return nullptr;
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.6g", value);
  return std::stod(buffer);
}

// Dygraphs requires rows [x, y of series 0, y of series 1, ...], with null where a series has no
// point.
PageJson chart_data(const ReportChart& chart) {
  const std::vector<PlotSeries>& series = chart.plot.series;
  PageJson labels = {chart.plot.x_label}, looks = PageJson::array();
  std::map<double, std::vector<double>> rows;
  for (size_t s = 0; s < series.size(); ++s) {
    labels.push_back(series[s].name.empty() ? concat("raw ", s) : series[s].name);
    looks.push_back(
        {{"colour", series[s].colour}, {"faint", series[s].faint}, {"points", series[s].points}});
    for (size_t i = 0; i < series[s].x.size(); ++i) {
      if (!std::isfinite(series[s].x[i])) continue;
      std::vector<double>& row = rows[series[s].x[i]];
      row.resize(series.size(), NAN);
      row[s] = series[s].y[i];
    }
  }
  PageJson table = PageJson::array();
  for (const auto& [x, values] : rows) {
    PageJson row = {x};
    for (const double value : values) row.push_back(rounded(value));
    table.push_back(std::move(row));
  }
  return {
      {"id", chart.id},           {"labels", std::move(labels)},   {"series", std::move(looks)},
      {"rows", std::move(table)}, {"x_label", chart.plot.x_label}, {"y_label", chart.plot.y_label}};
}

std::string chart_section(const ReportChart& chart, bool interactive) {
  std::string out = "<section>";
  if (interactive) {
    out +=
        concat("<div class=\"head\"><h2>", escape_markup(chart.plot.title),
               "</h2><label><input type=\"checkbox\" id=\"", chart.id, "-log\"> log scale</label>",
               "</div><div class=\"legend\" id=\"", chart.id, "-legend\"></div>");
  }
  out += concat("<div class=\"chart\" id=\"", chart.id, "\">", svg_plot(chart.plot), "</div>");
  return out + "</section>\n";
}

std::string config_section(const RunRecord& run) {
  if (run.config.empty()) return "";
  return concat("<section><details><summary>Configuration of ", escape_markup(run.name),
                "</summary><pre>", escape_markup(run.config), "</pre></details></section>\n");
}

}  // namespace

std::string report_page(const std::vector<RunRecord>& runs, const std::vector<ReportChart>& charts,
                        const std::string& dygraphs_script, const std::string& dygraphs_style) {
  const bool interactive = !dygraphs_script.empty();
  std::string names;
  for (const RunRecord& run : runs) names += (names.empty() ? "" : ", ") + run.name;
  std::string out = concat(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>",
      escape_markup(names), "</title>\n<style>", dygraphs_style, kStyle,
      "</style></head><body><main>\n", "<h1>", escape_markup(names), "</h1>\n", summary_table(runs),
      "<div class=\"charts\">\n");
  for (const ReportChart& chart : charts) out += chart_section(chart, interactive);
  out += "</div>\n<br>";
  for (const RunRecord& run : runs) out += config_section(run);
  out += interactive
             ? "<footer>Drag over a chart to zoom; double-click to reset. Pale lines are single "
               "steps, strong lines are moving averages.</footer>\n"
             : "<footer>Pale lines are single steps, strong lines are moving averages.</footer>\n";
  if (interactive) {
    PageJson data = PageJson::array();
    for (const ReportChart& chart : charts) data.push_back(chart_data(chart));
    const std::string json = data.dump(-1, ' ', true, PageJson::error_handler_t::replace);
    out += concat("<script>", dygraphs_script,
                  "</script>\n<script>const charts = ", json_for_script(json), ";", kScript,
                  "</script>\n");
  }
  return out + "</main></body></html>\n";
}

}  // namespace trireme
