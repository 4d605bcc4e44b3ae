// The text of responses of HTTP/1.1: heads and chunks.
#pragma once

#include <string>

#include "serving/http/server/exchange.h"

namespace trireme {

struct AnswerHead {
  int status = 200;
  std::string content_type = {};
  std::string request_id = {};
  Headers headers = {};
  std::string framing = {};  // whole lines: Content-Length or Transfer-Encoding
  bool keep = true;          // the connection goes on afterwards
  int version = 11;          // of the request, times ten
};

// Up to the empty line and with it.
std::string head_text(const AnswerHead& head);
// A chunk with its framing; bytes must not be empty.
std::string chunk_text(const std::string& bytes);

}  // namespace trireme
