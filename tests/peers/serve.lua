-- Requests of serve.py for wrk: score bodies from the file in BODIES, one a line, each thread from another one on.
-- The last line that it prints is a summary in JSON.

local bodies = {}
local threads = {}
local at = 0

function setup(thread)
    thread:set("number", #threads)
    table.insert(threads, thread)
end

function init(arguments)
    for line in io.lines(os.getenv("BODIES")) do
        table.insert(bodies, line)
    end
    at = number * 7919
    wrk.headers["Content-Type"] = "application/json"
    local token = os.getenv("TOKEN")
    if token then
        wrk.headers["Authorization"] = "Bearer " .. token
    end
end

function request()
    at = at + 1
    return wrk.format("POST", "/v1/score", nil, bodies[at % #bodies + 1])
end

function done(summary, latency, requests)
    local errors = summary.errors
    print(string.format(
        '{"requests": %d, "seconds": %.3f, "p50_ms": %.3f, "p90_ms": %.3f, "p99_ms": %.3f, "max_ms": %.3f, '
            .. '"refused": %d, "broken": %d}',
        summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(90) / 1e3,
        latency:percentile(99) / 1e3, latency.max / 1e3, errors.status,
        errors.connect + errors.read + errors.write + errors.timeout))
end
