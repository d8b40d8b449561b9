#include "worker/report/live_server.h"

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <fmt/format.h>

#include <array>
#include <csignal>

#include "cluster/net/endpoint.h"
#include "runtime/base/blocked_signals.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

// A page asks for a line of text and a few headers; nothing that is sent here is large.
constexpr int kMostHeaderBytes = 16 << 10;
constexpr int kMostBodyBytes = 1 << 10;
constexpr int kIdleSeconds = 30;

template <auto Free>
struct Freed {
  template <class T>
  void operator()(T* what) const noexcept {
    Free(what);
  }
};

template <class T>
T* made(T* what, const char* name) {
  if (what == nullptr) throw Error(fmt::format("live report: {} failed; is there memory left?", name));
  return what;
}

/// Of a parsed query; empty when it is not there.
std::string parameter(const evkeyvalq& query, const char* name) {
  const char* const found = evhttp_find_header(&query, name);
  return found == nullptr ? std::string() : std::string(found);
}

LiveRequest request_of(evhttp_request* request) {
  LiveRequest asked;
  if (const char* host = evhttp_find_header(evhttp_request_get_input_headers(request), "Host"))
    asked.host = host;
  const evhttp_uri* const uri = evhttp_request_get_evhttp_uri(request);
  if (const char* path = evhttp_uri_get_path(uri)) asked.path = path;
  const char* const text = evhttp_uri_get_query(uri);
  evkeyvalq query{};
  if (text == nullptr || evhttp_parse_query_str(text, &query) != 0) return asked;
  asked.token = parameter(query, "token");
  asked.after = parameter(query, "after");
  evhttp_clear_headers(&query);
  return asked;
}

void send(evhttp_request* request, const LiveAnswer& answer) {
  evkeyvalq* const headers = evhttp_request_get_output_headers(request);
  const std::array<std::pair<const char*, std::string>, 5> all = {{
      {"Content-Type", answer.type},
      {"ETag", answer.version},
      {"Cache-Control", "no-store"},
      {"X-Content-Type-Options", "nosniff"},
      {"Content-Security-Policy", "frame-ancestors 'none'"},
  }};
  for (const auto& [name, value] : all) {
    if (!value.empty()) evhttp_add_header(headers, name, value.c_str());
  }
  evbuffer_add(evhttp_request_get_output_buffer(request), answer.body.data(), answer.body.size());
  evhttp_send_reply(request, answer.status, nullptr, nullptr);
}

}  // namespace

struct LiveServer::State {
  std::function<LiveAnswer(const LiveRequest&)> answer;
  std::unique_ptr<event_base, Freed<event_base_free>> base;
  std::unique_ptr<evhttp, Freed<evhttp_free>> http;
  std::array<std::unique_ptr<event, Freed<event_free>>, 2> signals;
  std::uint16_t port = 0;
  int signal = 0;

  static void on_request(evhttp_request* request, void* state) {
    send(request, static_cast<State*>(state)->answer(request_of(request)));
  }
  static void on_signal(evutil_socket_t number, short, void* state) {
    auto* const self = static_cast<State*>(state);
    self->signal = static_cast<int>(number);
    event_base_loopbreak(self->base.get());
  }
};

LiveServer::LiveServer(std::uint16_t port, std::function<LiveAnswer(const LiveRequest&)> answer)
    : state_(std::make_unique<State>()) {
  Listener listener = listen_on("127.0.0.1", port, Deadline::after(std::chrono::seconds(5)));
  State& state = *state_;
  state.answer = std::move(answer);
  state.port = listener.port();
  state.base.reset(made(event_base_new(), "event_base_new"));
  state.http.reset(made(evhttp_new(state.base.get()), "evhttp_new"));
  evhttp_set_allowed_methods(state.http.get(), EVHTTP_REQ_GET | EVHTTP_REQ_HEAD);
  evhttp_set_max_headers_size(state.http.get(), kMostHeaderBytes);
  evhttp_set_max_body_size(state.http.get(), kMostBodyBytes);
  evhttp_set_timeout(state.http.get(), kIdleSeconds);
  evhttp_set_gencb(state.http.get(), &State::on_request, &state);
  for (std::size_t i = 0; i < state.signals.size(); ++i) {
    const int number = i == 0 ? SIGINT : SIGTERM;
    state.signals[i].reset(
        made(evsignal_new(state.base.get(), number, &State::on_signal, &state), "evsignal_new"));
    event_add(state.signals[i].get(), nullptr);
  }
  made(evhttp_accept_socket_with_handle(state.http.get(), listener.fd.get()), "evhttp_accept_socket");
  [[maybe_unused]] const int owned = listener.fd.release();  // by `http` from here on
}

LiveServer::~LiveServer() = default;

std::uint16_t LiveServer::port() const noexcept { return state_->port; }

int LiveServer::run() {
  const PipeSignalBlocked no_pipe_signal;  // a browser may close its side at any time
  event_base_dispatch(state_->base.get());
  return state_->signal;
}

}  // namespace dtrain
