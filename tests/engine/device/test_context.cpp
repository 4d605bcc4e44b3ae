// Messages of a program without the CUDA backend, and nominal figures of devices.
#include <gtest/gtest.h>

#include "engine/device/context.h"

namespace trireme::cuda::test_device {
namespace {

TEST(Device, WithoutTheBackendIsRefusedWithTheReason) {
  const DeviceStatus status = device_status();
  EXPECT_EQ(status.devices, 0);
  EXPECT_EQ(status.reason, "built without CUDA");
  try {
    open(0);
    FAIL() << "a device that is not there was opened";
  } catch (const InputError& e) {
    const std::string what = e.what();
    EXPECT_NE(what.find("built without CUDA"), std::string::npos) << what;
    EXPECT_NE(what.find("\"device\": \"cpu\""), std::string::npos) << what;
  }
}

// Dense bfloat16 TFLOP/s of the vendors' data sheets: A100 312, H100 and H200 (SXM) 989.4, L40 181.
TEST(Device, NominalTflopsAreTheMakers) {
  const auto nominal = [](int major, int minor, int multiprocessors, DType dtype) {
    return nominal_tflops({.name = {},
                           .compute_major = major,
                           .compute_minor = minor,
                           .multiprocessors = multiprocessors,
                           .clock_khz = 10'000'000},  // never the limit
                          dtype);
  };
  EXPECT_NEAR(nominal(8, 0, 108, DType::kBF16), 312, 1);
  EXPECT_NEAR(nominal(9, 0, 132, DType::kBF16), 989.4, 1);
  EXPECT_NEAR(nominal(8, 9, 142, DType::kBF16), 181, 3);
  EXPECT_NEAR(nominal(9, 0, 132, DType::kF32), 66.9, 6);
  EXPECT_EQ(nominal(7, 0, 80, DType::kBF16), 0) << "not known";
}

}  // namespace
}  // namespace trireme::cuda::test_device
