// Text of HTTP/1.1 responses: heads and chunks.
#pragma once

#include <string>

#include "serving/http/server/exchange.h"

namespace trireme {

struct ServerResponseHead {
  int status = 200;
  std::string content_type = {};
  std::string request_id = {};
  Headers headers = {};
  std::string framing = {};  // Content-Length or Transfer-Encoding line with CRLF; "": until close
  bool keep = true;          // the connection stays open after the response
  int version = 11;          // HTTP version of the request, times ten
};

// Head of the response, up to and including the empty line.
std::string head_text(const ServerResponseHead& head);
// One chunk with its framing; bytes must not be empty.
std::string chunk_text(const std::string& bytes);

}  // namespace trireme
