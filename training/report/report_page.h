// HTML page of a report (training/report/report.h).
#pragma once

#include <string>
#include <vector>

#include "engine/observe/svg_plot.h"
#include "training/report/report.h"

namespace trireme {

struct ReportChart {
  std::string id;  // "loss": id of the HTML element, and part of the SVG file's name
  Plot plot;
};

// Text of the page. dygraphs_script, dygraphs_style: contents of the library's files; empty: static
// pictures only.
std::string report_page(const std::vector<RunRecord>& runs, const std::vector<ReportChart>& charts,
                        const std::string& dygraphs_script, const std::string& dygraphs_style);

}  // namespace trireme
