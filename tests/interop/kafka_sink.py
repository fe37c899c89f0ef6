#!/usr/bin/env python3
"""Sends access records to a real Kafka, kills it and starts it again, and compares what came with what the gateway counted.

    mkdir -p target/interop/kafka && cd target/interop/kafka        # the broker's jars into lib/
    mvn dependency:copy-dependencies -DoutputDirectory=lib          # with a pom.xml that has org.apache.kafka:kafka_2.13:4.1.0
    pip install kafka-python
    tests/interop/kafka_sink.py --gateway target/debug/ferrum-edge --lib target/interop/kafka/lib

Every record that the gateway counts as sent must be in the topic; those of a dead broker must be counted as failed or lost.
"""

import argparse
import http.server
import json
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request

from kafka import KafkaConsumer
from kafka.admin import KafkaAdminClient, NewTopic

PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512
listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
log.dirs={folder}/data
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
auto.create.topics.enable=false
"""
TOPICS = ["plain", "scram256", "scram512", "wrong", "none"]


def ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [it.getsockname()[1] for it in sockets]
    for it in sockets:
        it.close()
    return found


class Kafka:
    def __init__(self, lib, folder):
        self.lib, self.folder = lib, folder
        self.plain, self.sasl, self.controller = ports(3)
        self.properties = folder / "k.properties"
        self.properties.write_text(PROPERTIES.format(plain=self.plain, sasl=self.sasl, controller=self.controller, folder=folder))
        users = [["--add-scram", f"SCRAM-SHA-{size}=[name=edge,password=edge-pw]"] for size in (256, 512)]
        self.java("kafka.tools.StorageTool", "format", "-t", "4L6g3nShT-eMCtK--X86sw", "-c", self.properties, *sum(users, [])).wait(60)

    def java(self, name, *arguments):
        log = open(self.folder / "kafka.log", "a")
        return subprocess.Popen(["java", "-Xmx256m", "-cp", f"{self.lib}/*", name, *map(str, arguments)], stdout=log, stderr=log)

    def start(self):
        self.process = self.java("kafka.Kafka", self.properties)
        for _ in range(120):
            try:
                return KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{self.plain}")
            except Exception:
                time.sleep(0.5)
        raise SystemExit("Kafka does not start")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_):
        pass


def sinks(kafka):
    def sink(name, port, mechanism=None, password="edge-pw"):
        settings = {"brokers": [f"127.0.0.1:{port}"], "topic": name if name != "missing" else "missing-topic"}
        if mechanism:
            settings["sasl"] = {"mechanism": mechanism, "username": "edge", "password": password}
        if name == "none":
            settings |= {"compression": "none", "acks": "leader"}
        return {"name": name, "kafka": settings, "interval": "200ms", "retry_for": "3000ms", "batch": 50}
    return [sink("plain", kafka.plain), sink("scram256", kafka.sasl, "scram-sha-256"), sink("scram512", kafka.sasl, "scram-sha-512"),
            sink("wrong", kafka.sasl, "scram-sha-256", "another"), sink("none", kafka.plain), sink("missing", kafka.plain)]


def counted(admin):
    text = urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics", timeout=10).read().decode()
    found = {}
    for sink, outcome, value in re.findall(r'ferrum_access_log_sink_records_total\{sink="(\w+)",outcome="(\w+)"\} (\d+)', text):
        found.setdefault(sink, {})[outcome] = int(value)
    return found


def consumed(kafka, topic):
    consumer = KafkaConsumer(topic, bootstrap_servers=f"127.0.0.1:{kafka.plain}", auto_offset_reset="earliest", consumer_timeout_ms=3000)
    paths, partitions = [], set()
    for message in consumer:
        paths.append(json.loads(message.value)["url.path"])
        partitions.add(message.partition)
    return paths, partitions


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gateway", required=True)
    parser.add_argument("--lib", required=True)
    args = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ferrum-kafka-"))
    kafka = Kafka(args.lib, folder)
    kafka.start().create_topics([NewTopic(topic, 3, 1) for topic in TOPICS])
    target = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=target.serve_forever, daemon=True).start()
    port, admin = ports(2)
    spec = folder / "gateway.json"
    spec.write_text(json.dumps({
        "gateway": {"http": f"127.0.0.1:{port}", "admin": f"127.0.0.1:{admin}", "access_log": {"sinks": sinks(kafka)}},
        "proxies": [{"id": "p", "listen_path": "/", "backend_scheme": "http", "backend_host": "127.0.0.1", "backend_port": target.server_port}],
    }))
    gateway = subprocess.Popen([args.gateway, "run", "--spec", str(spec)], stdout=open(folder / "gateway.log", "w"), stderr=subprocess.STDOUT)
    asked, failures = 0, []

    def send(count):
        nonlocal asked
        for _ in range(count):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/r{asked}", timeout=10).read()
            asked += 1

    def settle():
        for _ in range(150):
            found = counted(admin)
            if len(found) == 6 and all(sum(it.values()) == asked for it in found.values()):
                return found
            time.sleep(0.2)
        failures.append(f"{asked} records are not all accounted for: {counted(admin)}")
        return counted(admin)

    try:
        for _ in range(100):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics", timeout=1)
                break
            except OSError:
                time.sleep(0.2)
        send(300)
        first = settle()
        print("alive: ", first)
        kafka.kill()
        send(200)
        print("killed:", settle())
        kafka.start()
        send(300)
        last = settle()
        print("again: ", last)
        for topic in ("plain", "scram256", "scram512", "none"):
            paths, partitions = consumed(kafka, topic)
            sent, distinct = last[topic]["sent"], len(set(paths))
            print(f"{topic}: {sent} sent, {distinct} in the topic ({len(paths) - distinct} twice), partitions {sorted(partitions)}")
            if first[topic]["sent"] != 300 or distinct < sent or len(partitions) != 3 or sent < 500:
                failures.append(f"{topic}: {sent} sent, {distinct} in the topic")
        for name in ("wrong", "missing"):
            if last[name]["sent"] or last[name]["failed"] + last[name].get("queue_full", 0) != asked:
                failures.append(f"{name}: {last[name]}")
    finally:
        gateway.terminate()
        gateway.wait(30)
        kafka.kill()
    print("\n".join(failures) or "every record is accounted for")
    raise SystemExit(bool(failures))


if __name__ == "__main__":
    main()
