// Peers of a hub that know its secret and send what a test wants.
#pragma once

#include <cstring>

#include "tests/parallel/outer/remote/site_run.h"

namespace trireme::test {

// Authenticated peer that sends any message.
class RawPeer {
 public:
  RawPeer(const HubThread& hub, int site)
      : channel_(connect_control_channel(
            ControlAddress::tcp("127.0.0.1", hub.port(), kSiteSecret, kSitePeers), site,
            std::chrono::minutes(1), kSitePeers)) {
    prepare_site_channel(*channel_, kLongTimeout, kMaxHubBytes);
  }
  void send(SiteMessage kind, uint64_t number, const Bytes& payload = {}) {
    channel_->send(kind, number, payload);
  }
  void join(const std::string& config = "the run", uint64_t step = 0) {
    send(SiteMessage::kJoin, step, bytes_of(R"({"checksum": "1", "config": ")" + config + "\"}"));
  }
  // Both wait. Error once the hub has closed the connection.
  Message receive() { return *channel_->receive(ControlChannel::kForever); }
  Message await(SiteMessage kind) {  // drops others
    for (;;)
      if (Message message = receive(); message.is(kind)) return message;
  }
  std::string await_refusal() {
    const Message message = await(SiteMessage::kRefuse);
    return {reinterpret_cast<const char*>(message.payload.data()), message.payload.size()};
  }
  int fd() const { return channel_->fd(); }
  static Bytes bytes_of(const std::string& text) {
    const auto* const begin = reinterpret_cast<const std::byte*>(text.data());
    return {begin, begin + text.size()};
  }

 private:
  std::unique_ptr<ControlChannel> channel_;
};

// Peer that has joined a run that has started, as a site whose last connection may just be closing.
inline std::unique_ptr<RawPeer> member_of(const HubThread& hub, int site) {
  for (;;) {
    auto peer = std::make_unique<RawPeer>(hub, site);
    peer->join();
    const Message message = peer->receive();
    if (message.is(SiteMessage::kStart)) return peer;
    EXPECT_TRUE(message.is(SiteMessage::kRefuse));
  }
}

// Makes the peer start the run from weights of zero. It must be the first site that waits.
inline void start_from_zero(RawPeer& peer, const OuterConfig& config, uint64_t step = 0) {
  peer.join("the run", step);
  peer.await(SiteMessage::kDonate);
  const auto model = whole_model(config, OuterState::kHub);
  for (int f = 0; f < model->fragments(); ++f)
    peer.send(SiteMessage::kState, static_cast<uint64_t>(f),
              Bytes(static_cast<size_t>(model->state_bytes(f))));
  peer.await(SiteMessage::kStart);
}

// Payload of an update whose codes consist of equal bytes.
inline Bytes update_message(const OuterConfig& config, int fragment, int64_t step,
                            double squares = 0, std::byte code = {}) {
  const auto model = whole_model(config, OuterState::kHub);
  const UpdateHeader header{.step = step, .squares = squares};
  Bytes bytes(sizeof header + static_cast<size_t>(model->code_bytes(fragment)), code);
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

}  // namespace trireme::test
