"""A LangChain chat model through the gateway: start one with `adacompute serve --budget 3 --upstream URL`."""

import os

from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI

GATEWAY = os.environ.get("GATEWAY", "http://127.0.0.1:8080/v1")
MODEL = os.environ.get("MODEL", "SmolLM2-135M-Instruct-Q4_1")

prompt = ChatPromptTemplate([("user", "What is the capital of {country}? Answer with its name alone.")])
model = ChatOpenAI(base_url=GATEWAY, api_key="none", model=MODEL)
chain = prompt | model

for country in ("France", "Vietnam", "Peru"):
    message = chain.invoke({"country": country})
    print(f"{country}: {message.content}  ({message.usage_metadata['total_tokens']} tokens)")
