#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "engine/io/safetensors.h"
#include "tests/support/compare.h"
#include "tests/support/scratch_directory.h"

namespace trireme::test_safetensors {
namespace {

using test::ScratchDirectory;
using test::TestTensor;

std::string file_bytes(const std::string& header, const std::string& data = "") {
  std::string out(8, '\0');
  for (size_t i = 0; i < 8; ++i) out[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
  return out + header + data;
}

std::string problem_of(const std::string& file) {
  try {
    parse_safetensors_header(std::as_bytes(std::span(file)), static_cast<int64_t>(file.size()),
                             "some/file");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(Safetensors, ReadsWhatTheReferenceLibraryWrites) {
  // Two tensors as Python's safetensors 0.5 lays them out: a = [[1, 2, 3]] float32, b = [7] int64
  // first.
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},)"
      R"("a":{"dtype":"F32","shape":[1,3],"data_offsets":[8,20]}}   )";
  ASSERT_EQ(header.size() % 8, 0u);
  std::string data(20, '\0');
  data[0] = 7;
  const float values[3] = {1, 2, 3};
  std::memcpy(data.data() + 8, values, sizeof values);
  const ScratchDirectory dir;
  write_file_atomically(dir / "x.safetensors", file_bytes(header, data));
  const SafetensorsReader reader(dir / "x.safetensors");
  ASSERT_EQ(reader.entries().size(), 2u);
  EXPECT_EQ(reader.metadata().at("format"), "pt");
  EXPECT_EQ(reader.tensor("a").shape(), (Shape{1, 3}));
  EXPECT_EQ(reader.tensor("a").as<float>()[2], 3.0f);
  EXPECT_EQ(reader.tensor("b").as<int64_t>()[0], 7);
  EXPECT_EQ(reader.find("c"), nullptr);
  EXPECT_THROW(reader.tensor("c"), InputError);
}

TEST(Safetensors, WritesTheDocumentedBytes) {
  const std::string header =
      safetensors_header({{"w", DType::kBF16, {2, 3}}, {"s", DType::kF32, {}}}, {{"k", "v"}});
  const std::string json =
      R"({"__metadata__":{"k":"v"},"w":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},)"
      R"("s":{"dtype":"F32","shape":[],"data_offsets":[12,16]}})";
  ASSERT_EQ(header.size() % 8, 0u);
  EXPECT_EQ(header.substr(8, json.size()), json);
  EXPECT_EQ(header.find_first_not_of(' ', 8 + json.size()), std::string::npos);
  EXPECT_EQ(static_cast<size_t>(static_cast<uint8_t>(header[0])), header.size() - 8);
}

TEST(Safetensors, RoundTripOfEveryDType) {
  const ScratchDirectory dir;
  const std::vector<DType> dtypes = {DType::kF64, DType::kF32, DType::kBF16, DType::kF16};
  std::vector<SafetensorsSpec> specs;
  std::vector<TestTensor> tensors;
  for (const DType dtype : dtypes) {
    const std::string name = "layer \"quoted\" \xc3\xbc " + text(dtype);
    specs.push_back({name, dtype, {7, 4}});
    tensors.emplace_back(dtype, Shape{7, 4}, test::normals(name, 28));
  }
  specs.push_back({"ids", DType::kI32, {3}});
  tensors.emplace_back(Shape{3}, std::vector<int32_t>{5, -1, 9});
  SafetensorsWriter writer(dir / "f", specs);
  for (const TestTensor& tensor : tensors) writer.write(*tensor);
  writer.commit();
  const SafetensorsReader reader(dir / "f");
  ASSERT_EQ(reader.entries().size(), specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    EXPECT_EQ(test::compare_exact(reader.tensor(specs[i].name), *tensors[i]), "") << specs[i].name;
  }
}

TEST(Safetensors, AnUnfinishedFileNeverAppears) {
  const ScratchDirectory dir;
  {
    SafetensorsWriter writer(dir / "f", {{"w", DType::kF32, {100}}});
    const std::string too_short(399, 'x');
    writer.write(std::as_bytes(std::span(too_short)));
    EXPECT_THROW(writer.commit(), Error);
  }
  EXPECT_FALSE(std::filesystem::exists(dir / "f"));
  EXPECT_FALSE(std::filesystem::exists(dir / "f.tmp"));
}

TEST(Safetensors, TypesTheEngineLacksAreListedButNotViewed) {
  const ScratchDirectory dir;
  write_file_atomically(
      dir / "f", file_bytes(R"({"m":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]},)"
                            R"("w":{"dtype":"F32","shape":[1],"data_offsets":[1,5]},)"
                            R"("d":{"dtype":"U8","shape":[1,1,1,1,1,1],"data_offsets":[5,6]}})",
                            std::string(6, 'x')));
  const SafetensorsReader reader(dir / "f");
  EXPECT_EQ(reader.bytes(*reader.find("m")).size(), 1u);
  EXPECT_THROW(reader.tensor("m"), InputError);
  EXPECT_THROW(reader.tensor("w"), InputError);  // not aligned
  EXPECT_THROW(reader.tensor("d"), InputError);  // six dimensions
}

struct Hostile {
  const char* name;
  std::string file;
  const char* says;
};

std::string one(const std::string& entry, size_t data = 8) {
  return file_bytes("{\"w\":" + entry + "}", std::string(data, 'x'));
}

TEST(Safetensors, HostileFilesAreRefusedByName) {
  const std::string deep = std::string(1000, '[') + std::string(1000, ']');
  const std::vector<Hostile> cases = {
      {"empty", "", "not a safetensors file"},
      {"short", "1234567", "not a safetensors file"},
      {"huge header", std::string(8, '\xff') + "{}", "at most 100000000"},
      {"header beyond the file", std::string("\x10\0\0\0\0\0\0\0{}", 10), "truncated"},
      {"no JSON", file_bytes("hello"), "not valid JSON"},
      {"trailing text", file_bytes("{} {}"), "not valid JSON"},
      {"a list", file_bytes("[]"), "not a JSON object"},
      {"deep", file_bytes("{\"w\":" + deep + "}"), "nested deeper"},
      {"a key twice", file_bytes(R"({"w":1,"w":2})"), "appears twice"},
      {"no fields", one("{}"), "expected exactly"},
      {"a field too many", one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1})"),
       "expected exactly"},
      {"a field twice", one(R"({"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]})"),
       "appears twice"},
      {"dtype unknown", one(R"({"dtype":"F31","shape":[2],"data_offsets":[0,8]})"),
       "unknown dtype"},
      {"dtype no string", one(R"({"dtype":4,"shape":[2],"data_offsets":[0,8]})"), "not a string"},
      {"shape no list", one(R"({"dtype":"F32","shape":2,"data_offsets":[0,8]})"), "not a list"},
      {"negative dim", one(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})"), "whole number"},
      {"fraction", one(R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})"), "whole number"},
      {"beyond int64", one(R"({"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8]})"),
       "whole number"},
      {"product overflows",
       one(R"({"dtype":"F32","shape":[4294967296,4294967296,4],)"
           R"("data_offsets":[0,8]})"),
       "do not agree"},
      {"product wraps to the size",
       one(R"({"dtype":"F32","shape":[4611686018427387906],"data_offsets":[0,8]})"),
       "do not agree"},
      {"size wrong", one(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})"), "do not agree"},
      {"backwards", one(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})"), "are outside"},
      {"beyond the data", one(R"({"dtype":"F32","shape":[4],"data_offsets":[0,16]})"),
       "are outside"},
      {"three offsets", one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8,8]})"), "not a pair"},
      {"metadata no object", file_bytes(R"({"__metadata__":3})"), "not an object"},
      {"metadata no text", file_bytes(R"({"__metadata__":{"a":3}})"), "not a string"},
      {"bytes left over", one(R"({"dtype":"U8","shape":[7],"data_offsets":[0,7]})"),
       "belong to no tensor"},
      {"a gap", one(R"({"dtype":"U8","shape":[7],"data_offsets":[1,8]})"), "belong to no tensor"},
      {"an overlap",
       file_bytes(R"({"a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]},)"
                  R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                  std::string(8, 'x')),
       "overlaps"},
      {"bad UTF-8", file_bytes("{\"\xff\":1}"), "not valid JSON"},
  };
  for (const Hostile& hostile : cases) {
    const std::string problem = problem_of(hostile.file);
    EXPECT_NE(problem.find(hostile.says), std::string::npos) << hostile.name << ": " << problem;
    EXPECT_EQ(problem.find('\n'), std::string::npos) << hostile.name << ": " << problem;
  }
  EXPECT_EQ(problem_of(one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})")), "");
}

TEST(Safetensors, EveryTruncationIsNoticed) {
  const std::string whole = one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})");
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_NE(problem_of(whole.substr(0, size)), "") << size << " of " << whole.size() << " bytes";
  }
  EXPECT_NE(problem_of(whole + "x"), "");
}

}  // namespace
}  // namespace trireme::test_safetensors
