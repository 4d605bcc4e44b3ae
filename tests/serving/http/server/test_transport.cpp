// The same server over TLS.
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <cstdio>
#include <cstring>

#include "tests/serving/http/service/recorded_server.h"
#include "tests/support/scratch_directory.h"

namespace trireme::test_transport {
namespace {

using namespace test;

template <class T, void (*Free)(T*)>
struct Freed {
  void operator()(T* object) const { Free(object); }
};
template <class T, void (*Free)(T*)>
using Owned = std::unique_ptr<T, Freed<T, Free>>;

struct CloseFile {
  void operator()(FILE* file) const { std::fclose(file); }
};
using OwnedFile = std::unique_ptr<FILE, CloseFile>;

// Creates a key and a self-signed certificate.
TlsFiles make_files(const ScratchDirectory& folder) {
  const Owned<EVP_PKEY, EVP_PKEY_free> key(EVP_EC_gen("P-256"));
  const Owned<X509, X509_free> certificate(X509_new());
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
  X509_set_pubkey(certificate.get(), key.get());
  X509_NAME* name = X509_get_subject_name(certificate.get());
  const auto* host = reinterpret_cast<const unsigned char*>("localhost");
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, host, -1, -1, 0);
  X509_set_issuer_name(certificate.get(), name);
  X509_sign(certificate.get(), key.get(), EVP_sha256());
  TlsFiles files{folder / "chain.pem", folder / "key.pem"};
  PEM_write_X509(OwnedFile(std::fopen(files.certificate.c_str(), "w")).get(), certificate.get());
  PEM_write_PrivateKey(OwnedFile(std::fopen(files.key.c_str(), "w")).get(), key.get(), nullptr,
                       nullptr, 0, nullptr, nullptr);
  return files;
}

class TlsClient {
 public:
  TlsClient(int port, int max_version)
      : socket_(port), context_(SSL_CTX_new(TLS_client_method())), tls_(SSL_new(context_.get())) {
    SSL_set_max_proto_version(tls_.get(), max_version);
    if (max_version < TLS1_2_VERSION) SSL_set_security_level(tls_.get(), 0);
    SSL_set_fd(tls_.get(), socket_.file());
    connected_ = SSL_connect(tls_.get()) == 1;
    ERR_clear_error();
  }
  bool connected() const { return connected_; }
  void send(const std::string& bytes) {
    EXPECT_EQ(SSL_write(tls_.get(), bytes.data(), static_cast<int>(bytes.size())),
              static_cast<int>(bytes.size()));
  }
  std::string receive_all() {
    std::string out;
    char bytes[4096];
    for (int got; (got = SSL_read(tls_.get(), bytes, sizeof bytes)) > 0;)
      out.append(bytes, static_cast<size_t>(got));
    closed_well_ = SSL_get_shutdown(tls_.get()) == SSL_RECEIVED_SHUTDOWN;
    return out;
  }
  bool closed_well() const { return closed_well_; }

 private:
  RawClient socket_;
  Owned<SSL_CTX, SSL_CTX_free> context_;
  Owned<SSL, SSL_free> tls_;
  bool connected_ = false, closed_well_ = false;
};

TEST(HttpServerTls, RespondsAndStreams) {
  const ScratchDirectory folder;
  RecordedServerOptions options;
  options.http.tls = make_files(folder);
  RecordedServer server(options);
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    TlsClient client(server.port(), version);
    ASSERT_TRUE(client.connected());
    client.send(get("/health/live"));
    client.send(post("/v1/completions",
                     R"({"model":"m","prompt":"hi","max_tokens":40,"stream":true})",
                     "Connection: close\r\n"));
    const std::string all = client.receive_all();
    EXPECT_NE(all.find(R"({"status":"live"})"), std::string::npos);
    EXPECT_NE(all.find("data: [DONE]\n\n\r\n0\r\n\r\n"), std::string::npos);
    EXPECT_TRUE(client.closed_well());
  }
  EXPECT_FALSE(TlsClient(server.port(), TLS1_1_VERSION).connected());
  // Plain text gets no response.
  RawClient plain(server.port());
  plain.send(get("/health/live"));
  EXPECT_TRUE(plain.is_closed());
  EXPECT_EQ(plain.buffer().find("HTTP/1.1 200"), std::string::npos);
  EXPECT_TRUE(
      eventually([&] { return server.is_quiet() && server.server->counts().connections == 0; }));
}

TEST(HttpServerTls, CancelsForWhoeverGoesAway) {
  const ScratchDirectory folder;
  RecordedServerOptions options;
  options.http.tls = make_files(folder);
  RecordedServer server(options);
  server.gate.hold();
  {
    TlsClient client(server.port(), TLS1_3_VERSION);
    client.send(post("/v1/completions", R"({"model":"m","prompt":"hi","max_tokens":400})"));
    ASSERT_TRUE(eventually([&] { return server.sequences() == 1; }));
  }
  EXPECT_TRUE(eventually([&] { return server.sequences() == 0; }));
  server.gate.release();
  EXPECT_TRUE(eventually([&] { return server.is_quiet(); }));
}

TEST(HttpServerTls, NamesTheFileItCannotRead) {
  const ScratchDirectory folder;
  HttpConfig config;
  config.port = 0;
  config.tls = make_files(folder);
  config.tls->key = folder / "absent.pem";
  try {
    HttpServer(config, Routes());
    FAIL() << "a key that is not there";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("absent.pem"), std::string::npos);
  }
}

}  // namespace
}  // namespace trireme::test_transport
