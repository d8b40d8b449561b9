// A job's status as a monitoring system collects it: the text of OpenMetrics 1.0
// (https://prometheus.io/docs/specs/om/open_metrics_spec/), which Prometheus reads. Pure.
#pragma once

#include <string>
#include <string_view>

#include "launcher/control/job_status.h"

namespace dtrain::launcher {

inline constexpr std::string_view kOpenMetricsType =
    "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All metrics of this node. A value that is not known is left out.
std::string open_metrics(const JobStatus& job);

/// `text` between the quotes of a label.
std::string escaped_label(std::string_view text);

}  // namespace dtrain::launcher
