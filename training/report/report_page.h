// HTML page of a report.
#pragma once

#include <string>
#include <vector>

#include "engine/observe/svg_plot.h"
#include "training/report/report.h"

namespace trireme {

struct ReportChart {
  std::string id;  // "loss": the element's id and the picture's name
  Plot plot;
};

// dygraphs_script, dygraphs_style: contents of the library's files, or empty for static pictures
// only.
std::string report_page(const std::vector<RunRecord>& runs, const std::vector<ReportChart>& charts,
                        const std::string& dygraphs_script, const std::string& dygraphs_style);

}  // namespace trireme
