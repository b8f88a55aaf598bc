#include "engine/json.h"

#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "trtc/errors.h"

namespace trtc::engine {
namespace {

constexpr int kMaxDepth = 64;

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Json document() {
    Json value = read_value(0);
    skip_space();
    if (at_ != text_.size()) fail("something follows the value");
    return value;
  }

 private:
  [[noreturn]] void fail(const char* problem) const {
    throw EngineError("no JSON at byte " + std::to_string(at_) + ": " + problem);
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  bool skip(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  void skip_space() {
    while (at_ < text_.size() && (peek() == ' ' || peek() == '\t' || peek() == '\n' || peek() == '\r')) ++at_;
  }

  void expect(std::string_view word, const char* problem) {
    skip_space();
    if (!skip(word)) fail(problem);
  }

  Json read_value(int depth) {
    if (depth > kMaxDepth) fail("it nests too deep");
    skip_space();
    if (skip("null")) return Json(nullptr);
    if (skip("true")) return Json(true);
    if (skip("false")) return Json(false);
    if (peek() == '"') return Json(read_text());
    if (skip("[")) return read_array(depth);
    if (skip("{")) return read_object(depth);
    return read_number();
  }

  Json read_array(int depth) {
    JsonArray values;
    skip_space();
    if (skip("]")) return Json(std::move(values));
    while (true) {
      values.push_back(read_value(depth + 1));
      skip_space();
      if (skip("]")) return Json(std::move(values));
      expect(",", "expected , or ]");
    }
  }

  Json read_object(int depth) {
    JsonObject values;
    skip_space();
    if (skip("}")) return Json(std::move(values));
    while (true) {
      skip_space();
      if (peek() != '"') fail("expected a name");
      std::string name = read_text();
      expect(":", "expected :");
      if (!values.emplace(std::move(name), read_value(depth + 1)).second) fail("a name comes twice");
      skip_space();
      if (skip("}")) return Json(std::move(values));
      expect(",", "expected , or }");
    }
  }

  Json read_number() {
    double number = 0.0;
    const char* const begin = text_.data() + at_;
    const char* const end = text_.data() + text_.size();
    // from_chars also takes "inf" and "nan", which begin with a letter.
    if (peek() != '-' && (peek() < '0' || peek() > '9')) fail("expected a value");
    const auto [stop, error] = std::from_chars(begin, end, number);
    if (error != std::errc{} || !std::isfinite(number)) fail("expected a number");
    at_ += static_cast<std::size_t>(stop - begin);
    return Json(number);
  }

  std::string read_text() {
    ++at_;  // the quote
    std::string text;
    while (true) {
      if (at_ >= text_.size()) fail("a string does not end");
      const char c = text_[at_++];
      if (c == '"') return text;
      if (static_cast<unsigned char>(c) < 0x20) fail("a control character in a string");
      if (c == '\\') {
        read_escape(text);
      } else {
        text += c;
      }
    }
  }

  void read_escape(std::string& text) {
    constexpr std::string_view kEscapes = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    const char c = peek();
    ++at_;
    if (c == 'u') {
      append_utf8(text, read_code_point());
    } else if (const auto index = kEscapes.find(c); c != '\0' && index != std::string_view::npos) {
      text += kMeanings[index];
    } else {
      fail("an unknown escape");
    }
  }

  std::uint32_t read_code_unit() {
    std::uint32_t unit = 0;
    const std::string_view digits = text_.substr(at_, 4);
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), unit, 16);
    if (error != std::errc{} || digits.size() != 4 || stop != digits.data() + 4) fail("\\u without four digits");
    at_ += 4;
    return unit;
  }

  std::uint32_t read_code_point() {
    const std::uint32_t high = read_code_unit();
    if (high < 0xD800 || high > 0xDBFF || !skip("\\u")) return high;
    const std::uint32_t low = read_code_unit();
    if (low < 0xDC00 || low > 0xDFFF) fail("half a surrogate pair");
    return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
  }

  static void append_utf8(std::string& text, std::uint32_t code) {
    const auto tail = [&text, code](int shift) { text += static_cast<char>(0x80 | ((code >> shift) & 0x3F)); };
    if (code < 0x80) {
      text += static_cast<char>(code);
    } else if (code < 0x800) {
      text += static_cast<char>(0xC0 | (code >> 6));
      tail(0);
    } else if (code < 0x10000) {
      text += static_cast<char>(0xE0 | (code >> 12));
      tail(6);
      tail(0);
    } else {
      text += static_cast<char>(0xF0 | (code >> 18));
      tail(12);
      tail(6);
      tail(0);
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

template <typename T>
const T& typed(const Json& json, std::string_view name, const char* type) {
  const T* value = std::get_if<T>(&json.at(name).value());
  if (value == nullptr) throw EngineError("field " + std::string(name) + " is no " + type);
  return *value;
}

}  // namespace

const Json& Json::at(std::string_view name) const {
  const auto* object = std::get_if<JsonObject>(&value_);
  if (object == nullptr) throw EngineError("expected an object with the field " + std::string(name));
  const auto found = object->find(name);
  if (found == object->end()) throw EngineError("field " + std::string(name) + " is missing");
  return found->second;
}

const std::string& Json::text(std::string_view name) const { return typed<std::string>(*this, name, "string"); }

const JsonArray& Json::array(std::string_view name) const { return typed<JsonArray>(*this, name, "array"); }

std::int32_t Json::integer(std::string_view name) const {
  const double number = typed<double>(*this, name, "number");
  if (number != std::floor(number) || std::abs(number) > 2147483647.0) {
    throw EngineError("field " + std::string(name) + " is no int32");
  }
  return static_cast<std::int32_t>(number);
}

Json parse_json(std::string_view text) { return Parser(text).document(); }

}  // namespace trtc::engine
