#!/usr/bin/env python3
"""The local stack: a redis-server, a payment provider (provider.py) and a local AWS (ministack), with `template.yaml` deployed to it as it is.

    setup   installs or names what is missing
    up      starts what is not running and deploys what has changed; does nothing when nothing has
    down    ends what `up` started
    status  says what runs where
    run     a stack of its own around one command: up, the command, down whatever happened
    lose    ends the stack's redis-server, as a machine that dies, and starts an empty one in its place
    sale    puts up a sale to try things on: SKU s10 in activity a1, open now
    token   prints a JWT the stack accepts
    invoke  calls one deployed function with a sample event
    logs    prints what a function logged

Everything binds 127.0.0.1. State (processes, ports, logs, `outputs.json`) is in $HOTCAKE_STATE, `.local` by default: stacks with different
state directories run side by side. $HOTCAKE_AWS_PORT, $HOTCAKE_REDIS_PORT and $HOTCAKE_PROVIDER_PORT choose ports; free ones are taken otherwise.
"""

import argparse
import base64
import contextlib
import fcntl
import hashlib
import hmac
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import processes

ROOT = Path(__file__).resolve().parents[2]
STATE = Path(os.environ.get("HOTCAKE_STATE") or ROOT / ".local").resolve()
VENV = ROOT / ".local" / "venv"
REQUIREMENTS = ROOT / "tests" / "stack" / "requirements.txt"
TEMPLATE = ROOT / "template.yaml"
BINARIES = ROOT / "target" / "quick"

STACK_NAME = "hotcake"
REGION = "us-east-1"
STAGE = "prod"
READY_SECS = 30
DEPLOY_SECS = 300
TOKEN_SECS = 7 * 24 * 3600

# Fixed, so that the sample events can carry tokens and give the same order numbers everywhere. They open nothing but this stack.
JWT = {
    "kid": "local",
    "secret": "hotcake-local-development-key-not-a-secret",
    "iss": "https://hotcake.local",
    "aud": "hotcake",
    "adminAud": "hotcake-admin",
}
ORDER_NO_SECRET = "hotcake-local-order-numbers-not-a-secret"
PAY_NOTIFY_SECRET = "hotcake-local-payments-not-a-secret"
MERCHANT_ID = "hotcake-local"
CURRENCY = "CNY"
# all that a stack consists of
PROCESSES = ("redis", "provider", "aws")
# what `sale` puts up: the sample events and the README buy it
SAMPLE_ACTIVITY = "a1"
SAMPLE_SKU = "s10"
SAMPLE_UNITS = 100
ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
CACHE_USER = "app"
CACHE_PASSWORD = "local"


class Problem(Exception):
    """Something the developer can act on: printed without a traceback."""


# ------------------------------------------------------------------ what it runs on


def setup(chaos: bool) -> None:
    """Runs under the system's Python, before the venv exists."""
    if sys.version_info < (3, 11):
        raise Problem(f"python3 is {sys.version.split()[0]}: 3.11 or newer is needed")
    need("cargo", None, "https://rustup.rs installs it")
    need("cc", "build-essential", "a C compiler: `apt-get install build-essential`, or `xcode-select --install`")
    if not (shutil.which("redis-server") or shutil.which("valkey-server")):
        need("redis-server", "redis-server", "`apt-get install redis-server` or `brew install redis` (7.0 or newer; valkey-server will do)")
    redis_server()
    if chaos and not shutil.which("faketime"):
        install("faketime")
        if not shutil.which("faketime"):
            say("no libfaketime (`apt-get install faketime`): the rows that turn clocks are skipped")
    make_venv()


def need(tool: str, package: str | None, hint: str) -> None:
    """Installs a Debian package for a missing tool where that is possible, else says what to do."""
    if package and not shutil.which(tool):
        install(package)
    if not shutil.which(tool):
        raise Problem(f"{tool} is missing: {hint}")


def install(package: str) -> None:
    """Nothing where there are no Debian packages, or no right to install any."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return
    say(f"installing {package}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # a packaged redis-server starts itself as a service where there is one to start it: this policy says no
    policy = Path("/usr/sbin/policy-rc.d")
    own_policy = not policy.exists()
    if own_policy:
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
    try:
        subprocess.run(["apt-get", "update", "-qq"], check=False, env=environment)
        subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", package], check=False, env=environment)
    finally:
        if own_policy:
            policy.unlink()


def make_venv() -> None:
    stamp = VENV / "requirements.sha256"
    wanted = digest(REQUIREMENTS.read_bytes() + sys.version.encode())
    if stamp.exists() and stamp.read_text() == wanted:
        return
    say(f"python tools into {VENV.relative_to(ROOT)} (about a minute)")
    if subprocess.run([sys.executable, "-c", "import ensurepip, venv"], capture_output=True).returncode != 0:
        if os.geteuid() != 0 or not shutil.which("apt-get"):
            raise Problem("this python3 cannot make virtual environments: `apt-get install python3-venv`")
        subprocess.run(["apt-get", "install", "-y", "-qq", "python3-venv"], check=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], check=True)
    subprocess.run([VENV / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(REQUIREMENTS)], check=True)
    stamp.write_text(wanted)


def redis_server() -> str:
    """The server to run. 7.0 brought the script flags that the gate relies on."""
    server = shutil.which("redis-server") or shutil.which("valkey-server")
    if server is None:
        raise Problem("redis-server is missing: run `make setup`")
    banner = subprocess.run([server, "--version"], capture_output=True, text=True).stdout
    version = re.search(r"v=(\d+)", banner)
    if version is None or int(version[1]) < 7:
        raise Problem(f"{server} is too old ({banner.strip()}): 7.0 or newer is needed")
    return server


# ------------------------------------------------------------------------ up, down


def up() -> None:
    with locked():
        state = load_state()
        if not healthy(state):
            if state:
                say(f"gone: {', '.join(missing(state))}. An empty stack is started; what the old one held is lost")
            end(state)
            state = start()
        deploy(state)
        outputs = write_outputs(state)
    print(f"http   {outputs['httpUrl']}\nws     {outputs['wsUrl']}\nredis  {outputs['redisUrl']}\naws    {outputs['awsEndpoint']}\npay    {outputs['payProviderUrl']}\nall of it: {STATE / 'outputs.json'}")


def down() -> None:
    with locked():
        state = load_state()
        end(state)
    say("down" if state else "nothing was running")


def run(command: list[str]) -> int:
    """A fresh stack for one command, which finds it by $HOTCAKE_STATE. It is taken down whether the command succeeds, fails or is interrupted."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with locked():
        end(load_state())
    try:
        up()
        return subprocess.run(command, env={**os.environ, "HOTCAKE_STATE": str(STATE)}).returncode
    finally:
        down()


def lose() -> None:
    """What the gate looks like after the cache lost everything; the rest of the stack goes on."""
    with locked():
        state = load_state()
        if "redis" not in state.get("processes", {}):
            raise Problem("the stack is down: `make up`")
        processes.kill(state["processes"]["redis"])
        launch_redis(state)


def status() -> int:
    state = load_state()
    for name, process in state.get("processes", {}).items():
        print(f"{name:8} pid {process['pid']:<8} {'running' if processes.is_running(process) else 'gone'}")
    if not is_up(state, "aws") or "deployed" not in state:
        print("the stack is down: `make up`")
        return 1
    print((STATE / "outputs.json").read_text())
    if lost := missing(state):
        print(f"gone: {', '.join(lost)}. `make up` starts an empty stack")
        return 1
    return 0


def healthy(state: dict) -> bool:
    return not missing(state)


def missing(state: dict) -> list[str]:
    """The processes of the stack that are not there, or do not answer."""
    return [name for name in PROCESSES if not is_up(state, name)]


def is_up(state: dict, name: str) -> bool:
    answers = {"redis": redis_answers, "provider": provider_answers, "aws": aws_answers}
    process = state.get("processes", {}).get(name)
    return process is not None and processes.is_running(process) and answers[name](state[f"{name}Port"])


def start() -> dict:
    """Starts the servers, empty, and waits until they answer."""
    (STATE / "tmp").mkdir(parents=True, exist_ok=True)
    state = {
        **{f"{name}Port": int(os.environ.get(f"HOTCAKE_{name.upper()}_PORT") or processes.free_port()) for name in PROCESSES},
        "processes": {},
    }
    launch_redis(state)
    python, here = str(VENV / "bin" / "python"), ROOT / "tests" / "stack"
    launch(state, "provider", [python, str(here / "provider.py")], provider_answers, state["providerPort"], provider_environment(state))
    launch(state, "aws", [python, str(here / "local_aws.py")], aws_answers, state["awsPort"], aws_environment(state))
    return state


def launch_redis(state: dict) -> None:
    configuration = STATE / "redis.conf"
    configuration.write_text(redis_configuration(state["redisPort"]))
    launch(state, "redis", [redis_server(), str(configuration)], redis_answers, state["redisPort"], clean_environment())


def launch(state: dict, name: str, command: list[str], answers, port: int, environment: dict[str, str]) -> None:
    if answers(port):
        raise Problem(f"port {port} is taken by another server: choose one with HOTCAKE_{name.upper()}_PORT, or none")
    log = STATE / f"{name}.log"
    process = processes.start(command, log, environment)
    state["processes"][name] = process
    save_state(state)
    deadline = time.monotonic() + READY_SECS
    while not answers(port):
        if not processes.is_running(process) or time.monotonic() > deadline:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
            raise Problem(f"{name} did not start on port {port} within {READY_SECS} s; the end of {log}:\n{tail}")
        time.sleep(0.05)


def end(state: dict) -> None:
    """Ends the stack's processes and forgets its state. The Python tools and the logs stay."""
    for process in state.get("processes", {}).values():
        processes.stop(process)
    for name in ("stack.json", "outputs.json", "env.json", "redis.conf"):
        (STATE / name).unlink(missing_ok=True)
    for name in ("tmp", "sam"):
        shutil.rmtree(STATE / name, ignore_errors=True)


def redis_configuration(port: int) -> str:
    """As the cache on AWS: nothing is evicted, and the functions' user may do what the template's access string says and no more."""
    access = re.search(r'^ *AccessString: "on (.*)"$', TEMPLATE.read_text(), re.MULTILINE)
    if access is None:
        raise Problem("template.yaml has no AccessString of the form \"on ...\"")
    return f'bind 127.0.0.1\nport {port}\nsave ""\nappendonly no\nmaxmemory-policy noeviction\ndir "{STATE}"\nuser {CACHE_USER} on >{CACHE_PASSWORD} {access[1]}\n'


def clean_environment() -> dict[str, str]:
    """Functions inherit the local AWS's environment: they must not see the developer's proxies, profiles or keys."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    # everything the servers unpack goes with the stack; a path of its own also keeps two stacks apart
    return {**kept, "TMPDIR": str(STATE / "tmp")}


def aws_environment(state: dict) -> dict[str, str]:
    return {
        **clean_environment(),
        **credentials(state),
        # functions act under their own roles here too: what a policy of the template forgets is refused as on AWS
        "AUTH": "true",
        "GATEWAY_PORT": str(state["awsPort"]),
        "BIND_HOST": "127.0.0.1",
        "MINISTACK_REGION": REGION,
        "S3_DATA_DIR": str(STATE / "tmp" / "s3"),
        "IOT_MTLS_ENABLED": "0",
        "SFTP_ENABLED": "0",
        "LOG_LEVEL": "WARNING",
        "RUST_BACKTRACE": "1",
    }


def provider_environment(state: dict) -> dict[str, str]:
    return {
        **clean_environment(),
        "PORT": str(state["providerPort"]),
        "MERCHANT_ID": MERCHANT_ID,
        "KEY": PAY_NOTIFY_SECRET,
        "LEDGER": str(STATE / "provider.jsonl"),
    }


def provider_url(state: dict) -> str:
    return f"http://127.0.0.1:{state['providerPort']}"


def credentials(state: dict) -> dict[str, str]:
    """Point every AWS tool at the local stack, and away from any account the developer has."""
    return {
        "AWS_ENDPOINT_URL": aws_endpoint(state),
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": REGION,
        "AWS_REGION": REGION,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def aws_endpoint(state: dict) -> str:
    return f"http://127.0.0.1:{state['awsPort']}"


def redis_answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")
    except OSError:
        return False


def provider_answers(port: int) -> bool:
    return page_answers(f"http://127.0.0.1:{port}/v1/ledger")


def aws_answers(port: int) -> bool:
    return page_answers(f"http://127.0.0.1:{port}/_ministack/health")


def page_answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return answer.status == 200
    except OSError:
        return False


# -------------------------------------------------------------------------- deploy


def deploy(state: dict) -> None:
    """Brings the running stack to what is in the checkout, by the shortest way: nothing, new code for the functions that changed, or `sam deploy`."""
    code = {name: digest(binary(name).read_bytes()) for name in function_folders()}
    template = digest(TEMPLATE.read_bytes())
    deployed = state.get("deployed", {})
    if deployed.get("template") == template and set(deployed["code"]) == set(code):
        changed = [name for name in code if code[name] != deployed["code"][name]]
        for name in changed:
            say(f"new code for {name}")
            client(state, "lambda").update_function_code(FunctionName=deployed["outputs"][output_name(name)], ZipFile=package(name))
    else:
        deployed = {"template": template, "outputs": sam_deploy(state)}
    state["deployed"] = {**deployed, "code": code}
    save_state(state)


def sam_deploy(state: dict) -> dict[str, str]:
    say("sam build and sam deploy (about a minute)")
    gateway = aws_endpoint(state)
    parameters = {
        "LocalGateway": gateway,
        "LocalRedisUrl": f"redis://{CACHE_USER}:{CACHE_PASSWORD}@127.0.0.1:{state['redisPort']}",
        "LocalAuthKey": JWT["secret"],
        "LocalOrderNoSecret": ORDER_NO_SECRET,
        "LocalPaymentKey": PAY_NOTIFY_SECRET,
        "PayProviderUrl": provider_url(state),
        "PayMerchantId": MERCHANT_ID,
        "AuthIssuer": JWT["iss"],
        "AuthAudience": JWT["aud"],
        "AuthAdminAudience": JWT["adminAud"],
        "LocalArchitecture": "arm64" if os.uname().machine in ("arm64", "aarch64") else "x86_64",
    }
    overrides = ["--parameter-overrides", *(f"{name}={value}" for name, value in parameters.items())]
    build = STATE / "sam" / "build"
    sam("build", "--build-dir", str(build), *overrides, state=state)
    sam("deploy", "--template-file", str(build / "template.yaml"), *overrides, state=state)
    stack = client(state, "cloudformation").describe_stacks(StackName=STACK_NAME)["Stacks"][0]
    if not stack["StackStatus"].endswith("_COMPLETE") or "ROLLBACK" in stack["StackStatus"]:
        raise Problem(f"the deployment ended as {stack['StackStatus']}: {stack.get('StackStatusReason', 'no reason given')}")
    return {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}


def sam(verb: str, *arguments: str, state: dict) -> None:
    """Runs sam quietly, and shows all it said when it fails."""
    command = [str(VENV / "bin" / "sam"), verb, "--config-file", str(ROOT / "samconfig.toml"), "--config-env", "local", *arguments]
    environment = {**clean_environment(), **credentials(state), "SAM_CLI_TELEMETRY": "0", "HOTCAKE_LOCAL": "1"}
    try:
        result = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=DEPLOY_SECS)
    except subprocess.TimeoutExpired as late:
        raise Problem(f"sam {verb} took longer than {DEPLOY_SECS} s:\n{late.output or ''}") from late
    (STATE / f"sam-{verb}.log").write_text(result.stdout)
    if result.returncode != 0:
        raise Problem(f"sam {verb} failed:\n{result.stdout}")


def function_folders() -> list[str]:
    return sorted(folder.parent.name for folder in (ROOT / "functions").glob("*/Cargo.toml"))


def logical_id(folder: str) -> str:
    return "".join(part.capitalize() for part in folder.split("-")) + "Function"


def output_name(folder: str) -> str:
    return f"{logical_id(folder)}Name"


def binary(folder: str) -> Path:
    path = BINARIES / folder
    if not path.is_file():
        raise Problem(f"{path.relative_to(ROOT)} is not built: run `make build`")
    return path


def package(folder: str) -> bytes:
    """What Lambda takes: a zip with one executable named bootstrap."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        entry = zipfile.ZipInfo("bootstrap")
        entry.external_attr = 0o755 << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        archive.writestr(entry, binary(folder).read_bytes())
    return buffer.getvalue()


def write_outputs(state: dict) -> dict:
    """`outputs.json` is all that the demo, the tests and people with curl need; `env.json` is for `sam local invoke --env-vars`."""
    made = state["deployed"]["outputs"]
    outputs = {
        "httpUrl": made["HttpUrl"],
        "wsUrl": f"ws://127.0.0.1:{state['awsPort']}/_aws/execute-api/{made['WsApiId']}/{STAGE}",
        "adminToken": sign("admin", "admin", TOKEN_SECS),
        "jwt": JWT,
        "payProviderUrl": provider_url(state),
        "payNotifySecret": PAY_NOTIFY_SECRET,
        "merchantId": MERCHANT_ID,
        "redisUrl": f"redis://127.0.0.1:{state['redisPort']}",
        "awsEndpoint": aws_endpoint(state),
        "tables": {name: made[f"{name.capitalize()}TableName"] for name in ("orders", "offers", "payments", "connections", "chat")},
        "queues": {"orders": made["OrderQueueUrl"], "dlq": made["OrderDlqUrl"], "reminders": made["ReminderQueueUrl"], "greetings": made["GreetQueueUrl"]},
        "imageBucket": made["ImageBucketName"],
        "eventBus": made["EventBusName"],
        "functions": {name: made[output_name(name)] for name in function_folders()},
    }
    write_json(STATE / "outputs.json", outputs)
    functions = client(state, "lambda")
    environments = {logical_id(folder): functions.get_function_configuration(FunctionName=name)["Environment"]["Variables"] for folder, name in outputs["functions"].items()}
    write_json(STATE / "env.json", environments)
    return outputs


# ------------------------------------------------------------------------ a sale, and the verbs for one function


def sale() -> None:
    """What the README buys by hand. Doing it again lets the sale begin anew, with what is left of it."""
    url = running()["deployed"]["outputs"]["HttpUrl"]
    now = datetime.now(UTC)
    activity = f"/api/admin/activities/{SAMPLE_ACTIVITY}"
    rules = {"startsAt": instant(now), "endsAt": instant(now + timedelta(days=1)), "payWindowSecs": 900, "userIntervalMs": 1000, "deviceIpIntervalMs": 0}
    product = {"title": "Hotcake", "price": 9900, "currency": CURRENCY, "total": SAMPLE_UNITS, "limitPerUser": 3}
    admin(url, "PUT", f"/api/admin/skus/{SAMPLE_SKU}", {"title": "Hotcake", "stock": SAMPLE_UNITS})
    admin(url, "PUT", activity, {"name": "Try it", **rules})
    admin(url, "PUT", f"{activity}/products/{SAMPLE_SKU}", product)
    admin(url, "POST", f"{activity}/preheat", None)
    print(f"{SAMPLE_UNITS} units of {SAMPLE_SKU} are on sale in {SAMPLE_ACTIVITY} for a day")


def instant(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def admin(url: str, method: str, path: str, body: dict | None) -> None:
    headers = {"authorization": f"Bearer {sign('admin', 'admin', TOKEN_SECS)}", "content-type": "application/json"}
    request = urllib.request.Request(url + path, body and json.dumps(body).encode(), headers, method=method)
    try:
        urllib.request.urlopen(request, timeout=30).close()
    except urllib.error.HTTPError as refusal:
        raise Problem(f"{method} {path} is answered {refusal.code}: {refusal.read().decode(errors='replace')}") from refusal
    except OSError as problem:
        raise Problem(f"{method} {path} is not answered: {problem}") from problem


def token(user: str, role: str, seconds: int) -> None:
    print(sign(user, role, seconds))


def sign(user: str, role: str, seconds: int) -> str:
    now = int(time.time())
    header = {"alg": "HS256", "typ": "JWT", "kid": JWT["kid"]}
    claims = {"iss": JWT["iss"], "aud": JWT["adminAud"] if role == "admin" else JWT["aud"], "sub": user, "role": role, "iat": now, "exp": now + seconds}
    signed = ".".join(base64url(json.dumps(part, separators=(",", ":")).encode()) for part in (header, claims))
    return f"{signed}.{base64url(hmac.new(JWT['secret'].encode(), signed.encode(), hashlib.sha256).digest())}"


def invoke(folder: str, event: str) -> int:
    state = running()
    name = function_name(state, folder)
    if not event:
        raise Problem(f"say with which event: E=events/{folder}/...")
    try:
        payload = Path(event).read_bytes()
    except OSError as problem:
        raise Problem(f"no event: {problem}") from problem
    answer = client(state, "lambda").invoke(FunctionName=name, Payload=payload, LogType="Tail")
    print(base64.b64decode(answer.get("LogResult", "")).decode(errors="replace").rstrip(), file=sys.stderr)
    body = answer["Payload"].read().decode()
    with contextlib.suppress(json.JSONDecodeError):
        body = json.dumps(json.loads(body), indent=2, ensure_ascii=False)
    print(body)
    return 1 if "FunctionError" in answer else 0


def logs(folder: str, lines: int) -> None:
    state = running()
    configuration = client(state, "lambda").get_function_configuration(FunctionName=function_name(state, folder))
    pages = client(state, "logs").get_paginator("filter_log_events").paginate(logGroupName=configuration["LoggingConfig"]["LogGroup"])
    events = sorted((event for page in pages for event in page["events"]), key=lambda event: event["timestamp"])
    for event in events[-lines:]:
        print(event["message"].rstrip())


def running() -> dict:
    """The local AWS is there, with everything deployed. Whether anything else is gone may be just what somebody wants to find out."""
    state = load_state()
    if not is_up(state, "aws") or "deployed" not in state:
        raise Problem("the stack is down: `make up`")
    return state


def function_name(state: dict, folder: str) -> str:
    name = state["deployed"]["outputs"].get(output_name(folder))
    if name is None:
        asked = f"no function {folder!r}" if folder else "say which function: F=buy"
        raise Problem(f"{asked}; there are {', '.join(function_folders())}")
    return name


def client(state: dict, service: str):
    """boto3 is in the venv only, which `setup` runs without."""
    import boto3
    from botocore.config import Config

    # the environment wins over arguments in places (profiles, CA bundles): set all of it
    os.environ.update(credentials(state))
    return boto3.client(service, endpoint_url=aws_endpoint(state), region_name=REGION, config=Config(retries={"total_max_attempts": 1}, read_timeout=60))


# --------------------------------------------------------------------------- small things


@contextlib.contextmanager
def locked():
    """One `up` or `down` of a stack at a time."""
    STATE.mkdir(parents=True, exist_ok=True)
    with (STATE / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another `up` or `down` of {STATE}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def load_state() -> dict:
    try:
        return json.loads((STATE / "stack.json").read_text())
    except FileNotFoundError:
        return {}


def save_state(state: dict) -> None:
    write_json(STATE / "stack.json", state)


def write_json(path: Path, value: dict) -> None:
    """Whole or not at all: somebody may be reading."""
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(value, indent=2) + "\n")
    beside.replace(path)


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def say(what: str) -> None:
    print(f"· {what}", file=sys.stderr, flush=True)


def identifier(text: str) -> str:
    if not ID.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not 1 to 64 of A-Z a-z 0-9 _ -")
    return text


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("setup").add_argument("--chaos", action="store_true", help="also what `make chaos` turns clocks with")
    for verb in ("up", "down", "lose", "status", "sale"):
        verbs.add_parser(verb)
    runner = verbs.add_parser("run")
    runner.add_argument("command", nargs=argparse.REMAINDER)
    tokens = verbs.add_parser("token")
    tokens.add_argument("--user", type=identifier, required=True)
    tokens.add_argument("--role", choices=("user", "agent", "admin"), default="user")
    tokens.add_argument("--seconds", type=int, default=TOKEN_SECS)
    invoker = verbs.add_parser("invoke")
    invoker.add_argument("function")
    invoker.add_argument("event")
    logger = verbs.add_parser("logs")
    logger.add_argument("function")
    logger.add_argument("--lines", type=positive, default=100)
    arguments = parser.parse_args()
    match arguments.verb:
        case "setup":
            setup(arguments.chaos)
        case "up":
            up()
        case "down":
            down()
        case "lose":
            lose()
        case "status":
            return status()
        case "run":
            return run(arguments.command)
        case "sale":
            sale()
        case "token":
            token(arguments.user, arguments.role, arguments.seconds)
        case "invoke":
            return invoke(arguments.function, arguments.event)
        case "logs":
            logs(arguments.function, arguments.lines)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Problem as problem:
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
