// Checks of arguments: batch norm, whole and in steps, layer and RMS norm.
#include <utility>

#include "runtime/device/checked_kernels.h"
#include "runtime/device/kernel_checks.h"

namespace dtrain::checks {
namespace {

/// The input of a batch normalisation and the arrays of its channels.
void require_channels(std::string_view operation, const BatchNormChannels& channels, const View& input) {
  require_rank(operation, "input", input, 4);
  const DType dtype = input.dtype == DType::f64 ? DType::f64 : DType::f32;
  const std::pair<std::string_view, const View*> arrays[] = {{"weight", &channels.weight},
                                                             {"bias", &channels.bias},
                                                             {"running_mean", &channels.running_mean},
                                                             {"running_var", &channels.running_var},
                                                             {"mean", &channels.mean},
                                                             {"inv_std", &channels.inv_std}};
  for (const auto& [name, view] : arrays) require_vector(operation, name, *view, input.shape[1], dtype);
}

/// What its training writes: mean and inv_std, and the running statistics where there are any.
void require_statistics(std::string_view operation, const BatchNormChannels& channels) {
  const View& mean = channels.mean;
  require_rank(operation, "mean", mean, 1);
  const std::pair<std::string_view, const View*> written[] = {{"mean", &mean},
                                                              {"inv_std", &channels.inv_std},
                                                              {"running_mean", &channels.running_mean},
                                                              {"running_var", &channels.running_var}};
  for (const auto& [name, view] : written) {
    require_vector(operation, name, *view, mean.shape[0], mean.dtype);
    require_writable(operation, name, *view);
  }
}

/// The gradients of weight and bias, which may have null data.
void require_channel_gradients(std::string_view operation, const View& input, const View& grad_weight,
                               const View& grad_bias) {
  const DType dtype = input.dtype == DType::f64 ? DType::f64 : DType::f32;
  require_vector(operation, "grad_weight", grad_weight, input.shape[1], dtype);
  require_vector(operation, "grad_bias", grad_bias, input.shape[1], dtype);
}

/// More than one value for each channel: a variance of one value means nothing.
void require_several(std::string_view operation, const View& input) {
  if (input.shape[1] == 0 || input.numel() / input.shape[1] > 1) return;
  refuse(operation, "expected more than one value per channel to normalise, got input shape " +
                        input.shape.to_string() + "; use a larger batch or evaluation mode");
}

/// What the parts of a batch exchange: f64, dense, `parts` times 2 · `channels` + 1 elements.
void require_totals(std::string_view operation, std::string_view argument, const View& view,
                    std::int64_t parts, std::int64_t channels) {
  const std::int64_t length = 2 * channels + 1;
  require_dtype(operation, argument, view, DType::f64);
  if (view.is_contiguous() && view.numel() == parts * length) return;
  refuse(operation, as_text(argument) + " expected " + std::to_string(parts) + " x " +
                        std::to_string(length) + " dense elements, got shape " + view.shape.to_string());
}

/// A batch normalisation that gives `output`, whose statistics are there.
void require_apply(std::string_view operation, const BatchNormChannels& channels, const View& input,
                   const View& residual, const View& output) {
  require_channels(operation, channels, input);
  require_optional(operation, "residual", residual, input);
  require_like(operation, "output", output, input);
}

/// And one that computes them.
void require_training(std::string_view operation, const BatchNormChannels& channels, const View& input,
                      const View& residual, const View& output) {
  require_apply(operation, channels, input, residual, output);
  require_statistics(operation, channels);
  require_several(operation, input);
}

/// The matrices and vectors of a row norm, forward or backward.
void require_row_norm(std::string_view operation, const View& input, const View& weight, const View& mean,
                      const View& inv_std, const View& other) {
  if (!is_floating(input.dtype)) refuse_dtype(operation, input.dtype);
  require_rank(operation, "input", input, 2);
  require_like(operation, "output", other, input);
  if (!input.is_contiguous() || !other.is_contiguous()) {
    refuse(operation, "expected dense matrices, got strides " + input.strides.to_string() + " and " +
                          other.strides.to_string());
  }
  const DType statistics = input.dtype == DType::f64 ? DType::f64 : DType::f32;
  require_vector(operation, "weight", weight, input.shape[1], input.dtype);
  require_vector(operation, "mean", mean, input.shape[0], statistics);
  require_shape(operation, "inv_std", inv_std, {input.shape[0]});
  require_dtype(operation, "inv_std", inv_std, statistics);
}

}  // namespace

void batch_norm(const BatchNormRule& /*rule*/, const BatchNormChannels& channels, const View& input,
                const View& residual, const View& output) {
  require_training("batch_norm", channels, input, residual, output);
}

void batch_norm_inference(const BatchNormRule& /*rule*/, const BatchNormChannels& channels, const View& input,
                          const View& residual, const View& output) {
  require_apply("batch_norm_inference", channels, input, residual, output);
}

void batch_norm_backward(const BatchNormRule& rule, const BatchNormChannels& channels, const View& input,
                         const View& output, const View& grad_output, const View& grad_input,
                         const View& grad_residual, const View& grad_weight, const View& grad_bias) {
  constexpr std::string_view kName = "batch_norm_backward";
  require_channels(kName, channels, input);
  require_channel_gradients(kName, input, grad_weight, grad_bias);
  require_several(kName, input);
  require_like(kName, "grad_output", grad_output, input);
  require_like(kName, "grad_input", grad_input, input);
  require_optional(kName, "grad_residual", grad_residual, input);
  if (rule.activation == Activation::relu) require_like(kName, "output", output, input);
}

void batch_norm_moments(const View& input, const View& moments) {
  require_rank("batch_norm_moments", "input", input, 4);
  require_totals("batch_norm_moments", "moments", moments, 1, input.shape[1]);
}

void batch_norm_combine(const BatchNormRule& /*rule*/, const BatchNormChannels& channels, const View& parts) {
  constexpr std::string_view kName = "batch_norm_combine";
  require_statistics(kName, channels);
  require_rank(kName, "parts", parts, 2);
  require_totals(kName, "parts", parts, parts.shape[0], channels.mean.numel());
}

void batch_norm_apply(const BatchNormRule& /*rule*/, const BatchNormChannels& channels, const View& input,
                      const View& residual, const View& output) {
  require_apply("batch_norm_apply", channels, input, residual, output);
}

void batch_norm_grad_sums(const BatchNormChannels& channels, const View& input, const View& output,
                          const View& grad_output, const View& grad_residual, const View& grad_weight,
                          const View& grad_bias, const View& sums) {
  constexpr std::string_view kName = "batch_norm_grad_sums";
  require_channels(kName, channels, input);
  require_channel_gradients(kName, input, grad_weight, grad_bias);
  require_like(kName, "grad_output", grad_output, input);
  require_optional(kName, "output", output, input);
  require_optional(kName, "grad_residual", grad_residual, input);
  require_totals(kName, "sums", sums, 1, input.shape[1]);
}

void batch_norm_grad_input(const BatchNormChannels& channels, const View& sums, const View& input,
                           const View& output, const View& grad_output, const View& grad_input) {
  constexpr std::string_view kName = "batch_norm_grad_input";
  require_channels(kName, channels, input);
  require_like(kName, "grad_output", grad_output, input);
  require_like(kName, "grad_input", grad_input, input);
  require_optional(kName, "output", output, input);
  require_totals(kName, "sums", sums, 1, input.shape[1]);
}

void row_norm(const RowNormRule& /*rule*/, const View& input, const View& weight, const View& bias,
              const View& mean, const View& inv_std, const View& output) {
  require_row_norm("row_norm", input, weight, mean, inv_std, output);
  require_vector("row_norm", "bias", bias, input.shape[1], input.dtype);
}

void row_norm_backward(const View& input, const View& weight, const View& mean, const View& inv_std,
                       const View& grad_output, const View& grad_input, const View& grad_weight,
                       const View& grad_bias) {
  constexpr std::string_view kName = "row_norm_backward";
  require_row_norm(kName, input, weight, mean, inv_std, grad_output);
  require_optional(kName, "grad_input", grad_input, input);
  require_vector(kName, "grad_weight", grad_weight, input.shape[1], input.dtype);
  require_vector(kName, "grad_bias", grad_bias, input.shape[1], input.dtype);
}

}  // namespace dtrain::checks
